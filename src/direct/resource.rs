//! `acquire` and `release` of a resource, without a lockspace (command-line.md 8.8).
//!
//! The machines are those of the daemon, so ballots keep to their rules: no value is forgotten (R1), a block that is given up is
//! marked and not erased (R2). What is missing is everybody who could say whether an owner lives. So a lease that another host
//! owns is never taken, and one is only given up for the host id and generation that own it: the original's `release` reports
//! success and writes nothing, which is what a call without `-i` and `-g` does here too.

use super::host_id::{NoSuchHost, host};
use super::init::record;
use super::machine::{area, drive};
use super::report::{Failure, SHOWN_IN_HELP, first_step, report};
use super::storage::{Storage, StorageError};
use crate::cli::command::DirectLease;
use crate::output::note;
use crate::progress::{Signs, show, so_far};
use crate::subject;
use sanlock_blockio::Access;
use sanlock_blockio::drive::Areas;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, Mode};
use sanlock_lease::paxos::inspect::{InspectError, inspect};
use sanlock_lease::paxos::{AcquireError, PaxosAcquire, PaxosConfig, PaxosRelease, ReleaseError};
use sanlock_lease::record::{DELTA_MAGIC, HostBlock, RawLeader};
use sanlock_lease::text::{DiskSpec, ResourceSpec};
use sanlock_lease::timing::{IoTimeout, IoTimeoutError, WatchdogFire};
use sanlock_lease::verify::{self, Expect, LeaderError, Purpose};

/// Why a lease was not taken, or not given up.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("give the resource: -r LOCKSPACE:RESOURCE:PATH:OFFSET")]
    NoResource,
    #[error("the resource names no place")]
    NoDisk,
    #[error("give the host id (-i) and its generation (-g), both from 1")]
    NoIdentity,
    #[error(transparent)]
    HostId(#[from] NoSuchHost),
    #[error(transparent)]
    IoTimeout(#[from] IoTimeoutError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{0}")]
    NoLease(LeaderError),
    #[error(transparent)]
    Leader(LeaderError),
    #[error(transparent)]
    Disks(InspectError),
    #[error("the lease has sectors of {sector} bytes in areas of {align} bytes, other sizes were given")]
    Sizes { sector: u32, align: u64 },
    #[error(
        "owned by host id {host} generation {generation}, and without its lockspace nobody can tell whether that host lives"
    )]
    Owned { host: u64, generation: u64 },
    #[error(
        "host id {host} holds it shared with generation {generation}; an acquire would erase that, and others would take the lease beside whoever uses it. \
         Convert it through the daemon (sanlock client convert), or give it up first (sanlock direct release -i {host} -g {generation})"
    )]
    Shared { host: u64, generation: u64 },
    #[error(
        "another host has to do with it, and without its lockspace nobody can tell whether that host lives"
    )]
    OthersUnknown,
    #[error(transparent)]
    Acquire(AcquireError),
    #[error(transparent)]
    Release(ReleaseError),
    #[error("{path} ends after {left} of the {size} bytes of the lease at offset {offset}: {error}")]
    CutShort { path: String, offset: u64, size: u64, left: u64, error: Box<LeaseError> },
}

impl LeaseError {
    /// Adds where storage ends within the lease, if it does and that may be why.
    fn at_the_end(self, spec: &ResourceSpec, geometry: Geometry) -> Self {
        if ![ReturnCode::EMSGSIZE.0, ReturnCode::DBLOCK_READ.0, ReturnCode::LEADER_READ.0]
            .contains(&self.code())
        {
            return self;
        }
        let size = geometry.align().bytes();
        let short = spec.disks.iter().find_map(|disk| {
            let storage = Storage::open(&disk.path, Access::ReadOnly).ok()?;
            let left = storage.disk().size().saturating_sub(disk.offset);
            (left < size).then_some((disk, left))
        });
        let Some((disk, left)) = short else { return self };
        let path = String::from_utf8_lossy(&disk.path).into_owned();
        Self::CutShort { path, offset: disk.offset, size, left, error: Box::new(self) }
    }
}

impl Failure for LeaseError {
    fn code(&self) -> i32 {
        match self {
            Self::NoResource | Self::NoIdentity | Self::IoTimeout(_) | Self::Sizes { .. } => {
                ReturnCode::EINVAL.0
            }
            // Where no lease is, an acquire of the original finds no sizes, and says no more than this.
            Self::NoDisk | Self::NoLease(_) => ReturnCode::GENERIC.0,
            Self::HostId(_) => ReturnCode::LEADER_NUMHOSTS.0,
            Self::Storage(error) => error.code(),
            Self::Leader(error) | Self::Disks(InspectError::Leader(error)) => ReturnCode::from(error).0,
            Self::Disks(InspectError::TooFew { .. }) => ReturnCode::LEADER_READ.0,
            Self::Disks(InspectError::Differ) => ReturnCode::LEADER_DIFF.0,
            Self::Shared { .. } => ReturnCode::EAGAIN.0,
            Self::Owned { .. } | Self::OthersUnknown => ReturnCode::ACQUIRE_LOCKSPACE.0,
            Self::Acquire(error) => ReturnCode::from(error).0,
            Self::Release(error) => ReturnCode::from(error).0,
            Self::CutShort { error, .. } => error.code(),
        }
    }

    fn next(&self) -> Option<&'static str> {
        match self {
            Self::NoLease(error) => first_step(ReturnCode::from(error).0),
            Self::NoResource | Self::NoDisk | Self::NoIdentity => Some(SHOWN_IN_HELP),
            Self::Storage(error) => error.next(),
            Self::CutShort { .. } => Some(
                "check the offset; else make the file or device larger, which loses nothing of what is in it: 'sanlock fsck PATH' says more",
            ),
            error => first_step(error.code()),
        }
    }
}

pub(super) fn acquire(args: &DirectLease, signs: Signs) -> u8 {
    const ACTION: &str = "acquire";
    record(ACTION.as_bytes());
    let tell = so_far("taking the lease; an owner that may live is waited for until it must be dead");
    report(ACTION, &object(args), &show(signs, ACTION, tell, || try_acquire(ACTION, args)))
}

pub(super) fn release(args: &DirectLease) -> u8 {
    const ACTION: &str = "release";
    record(ACTION.as_bytes());
    report(ACTION, &object(args), &try_release(ACTION, args))
}

/// What an error message names.
fn object(args: &DirectLease) -> String {
    args.resource.as_ref().map(subject::resource).unwrap_or_default()
}

/// A lease on its disks, and what the leader in force says.
struct Lease<'a> {
    spec: &'a ResourceSpec,
    areas: Areas,
    disks: u8,
    leader: RawLeader,
    geometry: Geometry,
    /// The block of the host that is acted for, if there is one: of a disk that has a shared hold, of its latest generation.
    block: Option<HostBlock>,
}

impl<'a> Lease<'a> {
    /// Opens the disks and reads their leaders; a minority of them may be missing, unreadable or behind.
    fn find(args: &'a DirectLease, host: Option<HostId>) -> Result<Self, LeaseError> {
        let spec = args.resource.as_ref().ok_or(LeaseError::NoResource)?;
        let mut storages: Vec<_> =
            spec.disks.iter().map(|disk| Storage::open(&disk.path, Access::ReadWrite)).collect();
        let areas = storages.iter().zip(&spec.disks).map(|(storage, disk)| area(storage, disk.offset));
        let areas = Areas::new().with_resource(areas);
        let leaders = read_most(&mut storages, &spec.disks, 0, SECTOR_BYTES_MAX)?;
        let expect = Expect { lockspace: Some(spec.lockspace), resource: Some(spec.name), host_id: host };
        let leader = leader_in_force(&leaders, &expect)?;
        let geometry = verify::paxos(&leader, &expect, Purpose::Use).map_err(LeaseError::Leader)?;
        let (sector, align) = (geometry.sector(), geometry.align());
        if args.sizes.sector.is_some_and(|size| size != sector)
            || args.sizes.align.is_some_and(|size| size != align)
        {
            return Err(LeaseError::Sizes { sector: sector.bytes(), align: align.bytes() });
        }
        let block = match host {
            None => None,
            Some(host) => {
                let at = host.block_sector() * u64::from(sector.bytes());
                let sectors = read_most(&mut storages, &spec.disks, at, sector.slice_len())?;
                // What lies on a disk that has another lease says nothing of this one.
                let has_lease = |leader: &Option<Vec<u8>>| {
                    leader.as_ref().is_some_and(|sector| {
                        verify::paxos(&RawLeader::from_sector(sector), &expect, Purpose::Use) == Ok(geometry)
                    })
                };
                let ours = sectors.iter().zip(&leaders).filter(|(_, leader)| has_lease(leader));
                let blocks = ours.filter_map(|(sector, _)| Some(HostBlock::from_sector(sector.as_ref()?)));
                // A shared hold may be on some of the disks only, or lag behind on others.
                blocks.max_by_key(|block| (block.mode.is_shared(), block.mode.generation.get()))
            }
        };
        let disks = u8::try_from(spec.disks.len()).unwrap_or(u8::MAX);
        Ok(Self { spec, areas, disks, leader, geometry, block })
    }

    fn config(&self, host: HostId, generation: u64, io_timeout: IoTimeout) -> PaxosConfig {
        PaxosConfig {
            lockspace: self.spec.lockspace,
            resource: self.spec.name,
            host,
            generation,
            io_timeout,
            fire: WatchdogFire::DEFAULT,
            geometry: self.geometry,
            disks: self.disks,
        }
    }

    fn owned_by(&self, host: HostId, generation: u64) -> bool {
        self.leader.timestamp.get() != 0
            && self.leader.owner_id.get() == host.get()
            && self.leader.owner_generation.get() == generation
    }

    /// Gives up what is left of this host's hold or attempt, and marks its block (R2). `attempt`: the block as that attempt left it.
    fn retract(
        &self,
        action: &str,
        config: PaxosConfig,
        attempt: Option<HostBlock>,
    ) -> Result<(), LeaseError> {
        let machine = PaxosRelease::retract(config, self.geometry).of_attempt(attempt);
        let finished = drive(action, machine, self.areas.clone(), config.generation)?;
        if let Some(failure) = finished.outcome.block_failure {
            note(action, &format!("the host's ballot record could not be marked as released: {failure}"));
        }
        finished.outcome.result.map(drop).map_err(LeaseError::Release)
    }
}

/// So many bytes from each disk, `at` bytes behind the beginning of the lease; `None` from one that is missing or cannot be read.
///
/// # Errors
/// Only half of them can be read, or fewer: what is wrong with the first of the others.
fn read_most(
    storages: &mut [Result<Storage, StorageError>],
    disks: &[DiskSpec],
    at: u64,
    len: usize,
) -> Result<Vec<Option<Vec<u8>>>, LeaseError> {
    let mut failure = None;
    let read: Vec<_> = storages
        .iter_mut()
        .zip(disks)
        .map(|(storage, disk)| {
            let storage = storage.as_mut().map_err(|error| error.clone());
            let bytes = storage.and_then(|storage| storage.read(disk.offset.saturating_add(at), len));
            bytes.map_err(|error| failure = failure.take().or(Some(error))).ok()
        })
        .collect();
    if 2 * read.iter().flatten().count() > disks.len() {
        return Ok(read);
    }
    Err(failure.map_or(LeaseError::NoDisk, LeaseError::Storage))
}

/// What a majority of the disks has for a leader, or the newest one, as for the machines. Of a single disk it is what lies there.
fn leader_in_force(leaders: &[Option<Vec<u8>>], expect: &Expect) -> Result<RawLeader, LeaseError> {
    if let [Some(sector)] = leaders {
        return Ok(RawLeader::from_sector(sector));
    }
    let read: Vec<Option<&[u8]>> = leaders.iter().map(Option::as_deref).collect();
    match inspect(&read, expect) {
        Ok(found) => Ok(found.leader),
        Err(InspectError::Leader(error)) => Err(LeaseError::Leader(error)),
        Err(error) => Err(LeaseError::Disks(error)),
    }
}

/// The host id and generation that are acted for.
fn identity(args: &DirectLease) -> Result<(HostId, u64), LeaseError> {
    match (args.host_id, args.generation) {
        (Some(id), Some(generation)) if id > 0 && generation > 0 => Ok((host(id)?, generation)),
        _ => Err(LeaseError::NoIdentity),
    }
}

fn try_acquire(action: &str, args: &DirectLease) -> Result<(), LeaseError> {
    let io_timeout = IoTimeout::new(args.io_timeout)?;
    if args.resource.is_none() {
        return Err(LeaseError::NoResource);
    }
    let (host, generation) = identity(args)?;
    let spec = args.resource.as_ref().ok_or(LeaseError::NoResource)?;
    let lease = Lease::find(args, Some(host)).map_err(|error| match error {
        // The record of a lockspace states sizes, with which the original looks further.
        LeaseError::Leader(error @ LeaderError::Magic { found: DELTA_MAGIC, .. }) => {
            LeaseError::Leader(error)
        }
        LeaseError::Leader(error @ (LeaderError::Magic { .. } | LeaderError::Cleared)) => {
            LeaseError::NoLease(error)
        }
        // Its sizes may not be known.
        error => error.at_the_end(spec, Geometry::B512_M1),
    })?;
    if lease.spec.shared {
        note(action, "SH means nothing here: the lease is taken exclusively");
    }
    let (owner, owners) = (lease.leader.owner_id.get(), lease.leader.owner_generation.get());
    if lease.leader.timestamp.get() != 0 && owner != host.get() {
        return Err(LeaseError::Owned { host: owner, generation: owners });
    }
    if let Some(mode) = lease.block.map(|block| block.mode).filter(|mode| mode.is_shared()) {
        return Err(LeaseError::Shared { host: host.get(), generation: mode.generation.get() });
    }
    let config = lease.config(host, generation, io_timeout);
    let options = AcquireOptions {
        owner_nowait: true,
        lver: lease.spec.lver,
        num_hosts: None,
        seed: uuid::Uuid::new_v4().as_u64_pair().0,
        mode: Mode::Exclusive,
    };
    let finished = drive(action, PaxosAcquire::new(config, options), lease.areas.clone(), generation)?;
    match finished.outcome {
        AcquireOutcome::Acquired(_) => Ok(()),
        AcquireOutcome::Failed { error, retract, .. } => {
            // What another process of this host may own is not ours to give up.
            if retract.is_some() && finished.outstanding == 0 && !lease.owned_by(host, generation) {
                if let Err(error) = lease.retract(action, config, retract) {
                    note(action, &format!("what the attempt left on disk could not be taken back: {error}"));
                }
            }
            Err(match error {
                // The area of the lockspace is not open, so nobody's host id lease can be read.
                AcquireError::Io(IoFailure::NotOpen(_)) => LeaseError::OthersUnknown,
                error => LeaseError::Acquire(error).at_the_end(lease.spec, lease.geometry),
            })
        }
    }
}

fn try_release(action: &str, args: &DirectLease) -> Result<(), LeaseError> {
    let io_timeout = IoTimeout::new(args.io_timeout)?;
    if args.host_id.is_none() && args.generation.is_none() {
        let lease = Lease::find(args, None)?;
        if lease.leader.timestamp.get() != 0 {
            let (owner, generation) = (lease.leader.owner_id, lease.leader.owner_generation);
            note(
                action,
                &format!(
                    "nothing was written: host id {owner} generation {generation} owns the lease; to give it up although that \
                     host may be using it, add -i {owner} -g {generation}"
                ),
            );
        }
        return Ok(());
    }
    let (host, generation) = identity(args)?;
    let lease = Lease::find(args, Some(host))?;
    let mode = lease.block.map(|block| block.mode);
    let shares = mode.is_some_and(|mode| mode.is_shared() && mode.generation.get() == generation);
    if !lease.owned_by(host, generation) && !shares {
        note(
            action,
            &format!("nothing to release: host id {} generation {generation} holds nothing", host.get()),
        );
        return Ok(());
    }
    lease.retract(action, lease.config(host, generation, io_timeout), None)
}

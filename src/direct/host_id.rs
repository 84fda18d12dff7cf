//! `acquire_id`, `renew_id`, `release_id`: one host id's lease (command-line.md 8.9).
//!
//! The machines are those of the daemon: what is renewed or freed is read first and written only if it has not changed since.
//! Who owns it is not asked, as in the original: a host id that a daemon renews is lost to that daemon, which then stops the
//! processes that depend on it.

use super::init::record;
use super::leader::{Names, ReadError, find_delta};
use super::machine::{area, drive};
use super::report::{ALIGN_OFFSET, Failure, SHOWN_IN_HELP, first_step, report_as};
use super::storage::{Storage, StorageError};
use crate::cli::command::DirectHostId;
use crate::configured::fire_timeout;
use crate::progress::join::Join;
use crate::progress::{Signs, show};
use crate::subject;
use sanlock_blockio::Access;
use sanlock_blockio::drive::{Areas, monotonic_now};
use sanlock_daemon::config::{Config, Environment, Overrides};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::release::LeaveError;
use sanlock_lease::delta::{
    Corrupt, DeltaAcquire, DeltaConfig, DeltaRelease, Event, JoinError, Joined, RenewFailure, RenewOutcome,
    Renewal,
};
use sanlock_lease::geometry::HostId;
use sanlock_lease::limits::HOSTS_MAX;
use sanlock_lease::machine::Machine;
use sanlock_lease::record::{Bitmap, RawLeader};
use sanlock_lease::timing::{IoTimeout, IoTimeoutError};
use sanlock_lease::verify::{self, LeaderError, Purpose};

/// A number that no host can have.
#[derive(Debug, thiserror::Error)]
#[error("host id {0} does not exist, the largest one is {HOSTS_MAX}")]
pub(super) struct NoSuchHost(u64);

/// # Errors
/// No host can have that id.
pub(super) fn host(id: u64) -> Result<HostId, NoSuchHost> {
    HostId::new(id).ok_or(NoSuchHost(id))
}

/// Why a host id's lease was not written.
#[derive(Debug, thiserror::Error)]
enum HostIdError {
    #[error("give the lockspace with its path: -s NAME:HOST_ID:PATH:OFFSET")]
    NoPath,
    #[error("host_id 0 does not exist, give the one whose lease is meant")]
    NoHost,
    #[error(transparent)]
    HostId(#[from] NoSuchHost),
    #[error(transparent)]
    IoTimeout(#[from] IoTimeoutError),
    #[error("{0}")]
    Open(StorageError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("offset {offset} is no multiple of the storage's blocks of {block} bytes")]
    Unaligned { offset: u64, block: u32 },
    #[error("the host name cannot be found out: {0}")]
    HostName(std::io::Error),
    #[error("{0}, so how long a silent host may live is not known")]
    Configuration(String),
    #[error(transparent)]
    Read(ReadError),
    #[error(transparent)]
    Record(LeaderError),
    #[error("nobody ever owned this host id, use acquire_id")]
    NeverOwned,
    #[error("the record names host id {found} as its owner, expected {expected}")]
    OfAnother { found: u64, expected: u64 },
    #[error(transparent)]
    Join(JoinError),
    #[error(transparent)]
    Renew(RenewFailure),
    #[error(transparent)]
    Corrupt(Corrupt),
    #[error(transparent)]
    Leave(LeaveError),
}

impl Failure for HostIdError {
    fn code(&self) -> i32 {
        match self {
            Self::NoPath | Self::Open(_) => ReturnCode::ENODEV.0,
            Self::NoHost | Self::IoTimeout(_) | Self::NeverOwned | Self::Unaligned { .. } => {
                ReturnCode::EINVAL.0
            }
            Self::HostId(_) | Self::Join(JoinError::HostId { .. }) => ReturnCode::LEADER_MAGIC.0,
            Self::Storage(error) => error.code(),
            Self::OfAnother { .. } => ReturnCode::RENEW_OWNER.0,
            Self::HostName(_) | Self::Configuration(_) => ReturnCode::GENERIC.0,
            Self::Read(error) => error.code(),
            Self::Record(error) => ReturnCode::from(error).0,
            Self::Join(error) => ReturnCode::from(error).0,
            Self::Renew(error) => ReturnCode::from(error).0,
            Self::Corrupt(error) => ReturnCode::from(error).0,
            Self::Leave(error) => ReturnCode::from(error).0,
        }
    }

    fn next(&self) -> Option<&'static str> {
        match self {
            Self::Join(JoinError::Leader(error)) => first_step(ReturnCode::from(error).0),
            Self::Read(error) => error.next(),
            Self::Open(error) | Self::Storage(error) => error.next(),
            Self::NeverOwned => {
                Some("'sanlock direct dump PATH:OFFSET' lists the host ids that were ever used")
            }
            Self::OfAnother { .. } => {
                Some("give the host id that is meant; 'sanlock fsck PATH' says whether the record is damaged")
            }
            Self::Configuration(_) => Some("do it as a user who may read the configuration, as root may"),
            Self::NoPath | Self::NoHost => Some(SHOWN_IN_HELP),
            Self::Unaligned { .. } => Some(ALIGN_OFFSET),
            error => first_step(error.code()),
        }
    }
}

/// Carries out what was asked for; `in_result` is the name that stands in the result line.
fn carry_out(
    action: &str,
    in_result: &str,
    args: &DirectHostId,
    run: impl FnOnce(&Target<'_>) -> Result<(), HostIdError>,
) -> u8 {
    record(action.as_bytes());
    let outcome = Target::find(action, args).and_then(|target| run(&target));
    report_as(action, in_result, &subject::lockspace(&args.lockspace), &outcome)
}

pub(super) fn acquire_id(args: &DirectHostId, signs: Signs) -> u8 {
    carry_out("acquire_id", "acquire_id", args, |target| {
        // By a shorter one than the hosts have, one that is alive would pass for dead.
        fire_timeout().map_err(HostIdError::Configuration)?;
        let take = || target.drive(DeltaAcquire::new(target.config, None));
        let joined = if signs.any() {
            let join = Join::look(&args.lockspace, target.config.io_timeout, target.config.fire, None);
            show(signs, "acquire_id", move |passed| join.tell(passed), take)
        } else {
            take()
        };
        joined?.map(drop).map_err(|error| target.not_joined(error))
    })
}

/// The result line is misspelt, as scripts may look for it (command-line.md 8.9).
pub(super) fn renew_id(args: &DirectHostId) -> u8 {
    carry_out("renew_id", "rewew_id", args, |target| {
        let found = target.read()?;
        let mut renewal = Renewal::new(target.config, &found);
        // A host event stays as it is.
        let event = Event {
            generation: found.leader.write_id.get(),
            event: found.leader.write_generation.get(),
            data: found.leader.write_timestamp.get(),
        };
        renewal.set_outgoing(event, Bitmap::default());
        match target.drive(renewal)? {
            RenewOutcome::Renewed(_) => Ok(()),
            RenewOutcome::Failed(failure) => Err(HostIdError::Renew(failure)),
            RenewOutcome::Corrupt(corrupt) => Err(HostIdError::Corrupt(corrupt)),
        }
    })
}

pub(super) fn release_id(args: &DirectHostId) -> u8 {
    carry_out("release_id", "release_id", args, |target| {
        let Joined { geometry, leader, last_good } = target.read()?;
        target
            .drive(DeltaRelease::new(target.config, geometry, leader, last_good))?
            .map_err(HostIdError::Leave)
    })
}

/// Whose lease on which disk.
struct Target<'a> {
    action: &'a str,
    args: &'a DirectHostId,
    config: DeltaConfig,
    areas: Areas,
}

impl<'a> Target<'a> {
    fn find(action: &'a str, args: &'a DirectHostId) -> Result<Self, HostIdError> {
        let spec = &args.lockspace;
        if spec.path.is_empty() {
            return Err(HostIdError::NoPath);
        }
        let host = match spec.host_id {
            0 => return Err(HostIdError::NoHost),
            id => host(id)?,
        };
        let io_timeout = IoTimeout::new(args.io_timeout)?;
        let settings = Config::load(&Overrides::default(), &Environment::of_process());
        let host_name = match args.host_name {
            Some(name) => name,
            None => settings.host_name().map_err(HostIdError::HostName)?.1,
        };
        let storage = Ok(Storage::open(&spec.path, Access::ReadWrite).map_err(HostIdError::Open)?);
        let block = storage.as_ref().map_or(1, |storage| storage.disk().logical_block_size());
        if spec.offset % u64::from(block) != 0 {
            return Err(HostIdError::Unaligned { offset: spec.offset, block });
        }
        let areas = Areas::new().with_lockspace(area(&storage, spec.offset));
        let fire = settings.fire;
        let config = DeltaConfig { lockspace: spec.name, host, host_name, io_timeout, fire };
        Ok(Self { action, args, config, areas })
    }

    /// The record as it is, as if this process had just written it: the machines compare with it what they find.
    fn read(&self) -> Result<Joined, HostIdError> {
        let found = find_delta(&self.args.lockspace, self.args.sizes, Names::All);
        found.outcome.map_err(HostIdError::Read)?;
        let leader: RawLeader = found.record;
        // Later versions may be looked at, but not written.
        verify::delta(&leader, Some(&self.config.lockspace), Purpose::Use).map_err(HostIdError::Record)?;
        let (found, expected) = (leader.owner_id.get(), self.config.host.get());
        if found == 0 {
            return Err(HostIdError::NeverOwned);
        }
        if found != expected {
            return Err(HostIdError::OfAnother { found, expected });
        }
        let geometry = verify::sizes(&leader).map_err(HostIdError::Record)?;
        Ok(Joined { geometry, leader, last_good: monotonic_now() })
    }

    /// Where there is no lease, `read_leader` has the number for it: the join does not say which record it found none in.
    fn not_joined(&self, error: JoinError) -> HostIdError {
        if matches!(error, JoinError::Leader(LeaderError::Magic { .. })) {
            let found = find_delta(&self.args.lockspace, self.args.sizes, Names::All);
            if let Err(error) = found.outcome {
                return HostIdError::Read(error);
            }
        }
        HostIdError::Join(error)
    }

    fn drive<M: Machine>(&self, machine: M) -> Result<M::Outcome, HostIdError> {
        // A join is wanted whatever its generation; the other two do not ask.
        Ok(drive(self.action, machine, self.areas.clone(), 0)?.outcome)
    }
}

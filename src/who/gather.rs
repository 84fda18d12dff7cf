//! From the question to the answer: finds the lease, reads it, and judges those that hold it.

use super::disk::{self, Found, Search};
use super::judge::{Outlook, Seen};
use super::local::Local;
use super::report::{
    DiskReport, HostReport, LockspaceReport, Mode, Report, RequestReport, ResourceReport, Source,
};
use super::{ACTION, WhoError};
use crate::cli::who::{WhoArgs, WhoTarget};
use crate::client;
use crate::configured::likely_fire_timeout;
use crate::direct::{Area, StorageError};
use crate::json::Text;
use crate::output::note;
use sanlock_client::ClientError;
use sanlock_lease::geometry::HostId;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::inspect::{Inspection, inspect};
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec};
use sanlock_lease::timing::WatchdogFire;
use sanlock_lease::verify::{Expect, LeaderError};
use std::io::IsTerminal;
use std::time::Duration;

/// What is asked about, found.
enum Subject {
    Lockspace { name: Name, place: DiskSpec },
    Resource { lockspace: Name, name: Name, disks: Disks },
}

/// The disks of a resource.
enum Disks {
    /// All of them, as they were given or as the daemon has them.
    Known(Vec<DiskSpec>),
    /// One that was found by the resource's name. There may be others.
    Found([DiskSpec; 1]),
}

impl Disks {
    fn places(&self) -> &[DiskSpec] {
        match self {
            Self::Known(disks) => disks,
            Self::Found(disk) => disk,
        }
    }
}

/// What a look at the records of hosts on the disk brought. The daemon, which tells when each has changed, does not say whether it is
/// sound.
enum Records {
    /// It is not known where they are, or nobody matters.
    NotLooked,
    /// Those that are damaged.
    Looked(Vec<(HostId, LeaderError)>),
    /// They cannot be read by this command.
    Unread(WhoError),
}

impl Records {
    /// Looks at the records of these hosts; of all, if there are none.
    fn look(place: &DiskSpec, lockspace: Name, hosts: &[HostId]) -> Self {
        disk::damaged_hosts(place, lockspace, hosts).map_or_else(Self::Unread, Self::Looked)
    }

    /// What is wrong with that of a host.
    fn damage(&self, host_id: u64) -> Option<&LeaderError> {
        let Self::Looked(damaged) = self else { return None };
        damaged.iter().find(|(host, _)| host.get() == host_id).map(|(_, error)| error)
    }
}

/// Somebody who holds the resource: host id, generation, how.
type Holder = (u64, u64, Mode);

pub(super) fn gather(args: &WhoArgs) -> Result<Report, WhoError> {
    let asked = Gatherer::new(args);
    match asked.find()? {
        Subject::Lockspace { name, place } => asked.lockspace(name, &place),
        Subject::Resource { lockspace, name, disks } => asked.resource(lockspace, name, &disks),
    }
}

struct Gatherer<'a> {
    args: &'a WhoArgs,
    local: Result<Local, ClientError>,
    fire: WatchdogFire,
}

impl<'a> Gatherer<'a> {
    fn new(args: &'a WhoArgs) -> Self {
        Self { args, local: Local::ask(), fire: likely_fire_timeout() }
    }

    /// Place and own host id of a lockspace that the daemon is in.
    fn joined(&self, name: Name) -> Option<(DiskSpec, u64)> {
        self.local.as_ref().ok()?.lockspace(name)
    }

    /// The place that was given for a lockspace (`-s`).
    fn given(&self, name: Name) -> Option<DiskSpec> {
        let LockspaceSpec { name: found, path, offset, .. } = self.args.lockspace.as_ref()?;
        (*found == name && !path.is_empty()).then(|| DiskSpec { path: path.clone(), offset: *offset })
    }

    /// Where a lockspace is: as given, or as the daemon has it; and the host id, if the daemon is in that one. It may be in another one of
    /// that name.
    fn known(&self, name: Name) -> Option<(DiskSpec, Option<u64>)> {
        match (self.given(name), self.joined(name)) {
            (Some(given), Some((joined, _))) if !disk::is_same_place(&joined, &given) => Some((given, None)),
            (_, Some((joined, host_id))) => Some((joined, Some(host_id))),
            (Some(given), None) => Some((given, None)),
            (None, None) => None,
        }
    }

    /// Why the daemon did not help.
    fn without(&self, missing: WhoError) -> WhoError {
        match &self.local {
            Ok(_) => missing,
            Err(error) => WhoError::NoDaemon(error.clone()),
        }
    }

    fn find(&self) -> Result<Subject, WhoError> {
        match &self.args.target {
            WhoTarget::Lockspace(name) => {
                let place = self.known(*name).map(|(place, _)| place);
                let place = place.ok_or_else(|| self.without(WhoError::LockspacePlace))?;
                Ok(Subject::Lockspace { name: *name, place })
            }
            WhoTarget::Resource(spec) => self.find_resource(spec),
            WhoTarget::Place(place) => Ok(match disk::identify(place)? {
                Found::Lockspace(name) => Subject::Lockspace { name, place: place.clone() },
                Found::Resource(lockspace, name) => {
                    Subject::Resource { lockspace, name, disks: Disks::Known(vec![place.clone()]) }
                }
            }),
        }
    }

    fn find_resource(&self, spec: &ResourceSpec) -> Result<Subject, WhoError> {
        let (lockspace, name) = (spec.lockspace, spec.name);
        if let [place] = spec.disks.as_slice() {
            // LOCKSPACE:HOST_ID:PATH:OFFSET looks like a resource whose name is a number: what lies there decides.
            let number = !name.is_empty() && name.as_bytes().iter().all(u8::is_ascii_digit);
            if number && matches!(disk::identify(place), Ok(Found::Lockspace(found)) if found == lockspace) {
                return Ok(Subject::Lockspace { name: lockspace, place: place.clone() });
            }
        }
        let disks = if spec.disks.is_empty() {
            self.search_resource(lockspace, name)?
        } else {
            Disks::Known(spec.disks.clone())
        };
        Ok(Subject::Resource { lockspace, name, disks })
    }

    /// The place of a resource of which only the names are known: where it is held here, else on the lockspace's device.
    fn search_resource(&self, lockspace: Name, name: Name) -> Result<Disks, WhoError> {
        if let Some(disks) = self.local.as_ref().ok().and_then(|local| local.disks_of(lockspace, name)) {
            return Ok(Disks::Known(disks));
        }
        let Some((place, _)) = self.known(lockspace) else {
            return Err(self.without(WhoError::ResourcePlace));
        };
        let found = disk::search(&place.path, place.offset, |area, leader| {
            area == Area::Resource
                && lockspace.matches(&leader.space_name)
                && name.matches(&leader.resource_name)
        })?;
        match found {
            Search::Found(disk) => Ok(Disks::Found([disk])),
            Search::Nowhere => Err(WhoError::ResourcePlace),
            Search::NotIn { places } => Err(WhoError::NotLookedFurther(places)),
        }
    }

    fn lockspace(&self, name: Name, place: &DiskSpec) -> Result<Report, WhoError> {
        let mut source = self.source();
        let joined = self.joined(name).filter(|(joined, _)| disk::is_same_place(joined, place));
        let ours = joined.map(|(_, id)| id);
        let seen = match self.seen_by_daemon(name, ours, &mut source) {
            Some(seen) => seen,
            None => self.watch(place, name, &[], &mut source)?,
        };
        let records = Records::look(place, name, &[]);
        // One with a damaged record may be in it.
        let members = seen.iter().filter(|(id, seen)| seen.timestamp != 0 || records.damage(*id).is_some());
        let hosts = members.map(|(id, seen)| self.host(*id, None, Some(seen), ours, &records)).collect();
        let processes = match (&self.local, ours) {
            (Ok(local), Some(_)) => local.processes(name, None),
            _ => Vec::new(),
        };
        let lockspace = Some(lockspace_report(name, place, ours, &records));
        Ok(Report { source, lockspace, resource: None, hosts, processes })
    }

    fn resource(&self, lockspace: Name, name: Name, disks: &Disks) -> Result<Report, WhoError> {
        let mut source = self.source();
        let (report, holders) = self.read_resource(lockspace, name, disks, &mut source)?;
        let (place, ours) = match self.known(lockspace) {
            Some((place, ours)) => (Some(place), ours),
            None if holders.is_empty() => (None, None),
            None => (search_lockspace(lockspace, disks.places()), None),
        };
        let ids: Vec<HostId> = holders.iter().filter_map(|(id, ..)| HostId::new(*id)).collect();
        // Whoever wants the lease has to read the records of its holders.
        let wanted = place.as_ref().filter(|_| !ids.is_empty());
        let look = || wanted.map_or(Records::NotLooked, |place| Records::look(place, lockspace, &ids));
        let (seen, records) = match (self.seen_by_daemon(lockspace, ours, &mut source), wanted) {
            (Some(seen), _) => (seen, look()),
            (None, Some(place)) => match self.watch(place, lockspace, &ids, &mut source) {
                Ok(seen) => (seen, look()),
                // What the lease says is known all the same.
                Err(error) => (Vec::new(), Records::Unread(error)),
            },
            (None, None) => (Vec::new(), Records::NotLooked),
        };
        let hosts = holders.iter().map(|(id, generation, mode)| {
            let seen = seen.iter().find(|(host, _)| host == id).map(|(_, seen)| seen);
            self.host(*id, Some((*generation, *mode)), seen, ours, &records)
        });
        let processes = self
            .local
            .as_ref()
            .map(|local| local.processes(lockspace, Some((name, disks.places()))))
            .unwrap_or_default();
        Ok(Report {
            source,
            hosts: hosts.collect(),
            lockspace: place.map(|place| lockspace_report(lockspace, &place, ours, &records)),
            resource: Some(report),
            processes,
        })
    }

    /// The lease, from its disks; where none of them can be read by this command, through the daemon.
    fn read_resource(
        &self,
        lockspace: Name,
        name: Name,
        disks: &Disks,
        source: &mut Source,
    ) -> Result<(ResourceReport, Vec<Holder>), WhoError> {
        let found_by_name = matches!(disks, Disks::Found(_));
        let disks = disks.places();
        let areas: Vec<Result<Vec<u8>, StorageError>> = disks.iter().map(disk::read_lease).collect();
        let mut report = ResourceReport {
            lockspace: Text::from(lockspace.as_bytes()),
            name: Text::from(name.as_bytes()),
            disks: disks.iter().zip(&areas).map(|(disk, area)| disk_report(disk, area)).collect(),
            found_by_name,
            lease_version: 0,
            sector_size: None,
            agreed: true,
            mode: Mode::Free,
            released_by: None,
            contenders: Vec::new(),
            request: None,
            damaged: Vec::new(),
        };
        let holders = if areas.iter().any(Result::is_ok) {
            let expect = Expect { lockspace: Some(lockspace), resource: Some(name), host_id: None };
            let read: Vec<Option<&[u8]>> = areas.iter().map(|area| area.as_deref().ok()).collect();
            let found = inspect(&read, &expect)?;
            report.fill(&found);
            holders_of(&found)
        } else {
            let failure = areas.into_iter().find_map(Result::err);
            let Ok(local) = &self.local else {
                return Err(failure.map_or(WhoError::NoLease, WhoError::Storage));
            };
            let (found, hosts) = client::owners(&local.reading(), lockspace, name, disks)?;
            source.disk = false;
            report.lease_version = found.lver.get();
            hosts
                .iter()
                .map(|host| {
                    let mode = if host.timestamp.get() == 0 { Mode::Shared } else { Mode::Exclusive };
                    (host.host_id.get(), host.generation.get(), mode)
                })
                .collect()
        };
        report.mode = holders.first().map_or(Mode::Free, |(.., mode)| *mode);
        Ok((report, holders))
    }

    /// What the daemon has seen of the hosts, if it is in the lockspace. It may leave it at any moment.
    fn seen_by_daemon(
        &self,
        lockspace: Name,
        ours: Option<u64>,
        source: &mut Source,
    ) -> Option<Vec<(u64, Seen)>> {
        let local = self.local.as_ref().ok().filter(|_| ours.is_some())?;
        match local.hosts(lockspace) {
            Ok(seen) => {
                source.daemon = true;
                Some(seen)
            }
            Err(error) => {
                source.daemon_error = Some(error.to_string());
                None
            }
        }
    }

    fn watch(
        &self,
        place: &DiskSpec,
        name: Name,
        ids: &[HostId],
        source: &mut Source,
    ) -> Result<Vec<(u64, Seen)>, WhoError> {
        let watch = self.args.watch.map(|secs| Duration::from_secs(secs.into()));
        let mut told = !std::io::stderr().is_terminal();
        let hosts = disk::watch_hosts(place, name, ids, watch, |left| {
            if !std::mem::replace(&mut told, true) {
                let left = left.as_secs();
                note(
                    ACTION,
                    &format!("watching the disk for renewals, for up to {left} s (--watch SECONDS)"),
                );
            }
        })?;
        source.watched_s = Some(hosts.watched.as_secs());
        Ok(hosts.seen.into_iter().map(|(host, seen)| (host.get(), seen)).collect())
    }

    fn source(&self) -> Source {
        let daemon_error = self.local.as_ref().err().map(ToString::to_string);
        Source { daemon: false, daemon_error, disk: true, watched_s: None }
    }

    fn host(
        &self,
        host_id: u64,
        holding: Option<(u64, Mode)>,
        seen: Option<&Seen>,
        ours: Option<u64>,
        records: &Records,
    ) -> HostReport {
        let this_host = ours == Some(host_id);
        let generation = holding.map(|(generation, _)| generation);
        let outlook = Outlook::of(generation, seen, this_host, self.fire);
        let damage = records.damage(host_id);
        let outlook = match records {
            _ if damage.is_some() => Outlook::Damaged,
            Records::Looked(_) => outlook,
            Records::Unread(_) if outlook == Outlook::NoRecord => Outlook::Unreadable,
            Records::NotLooked | Records::Unread(_) => outlook.unread(),
        };
        HostReport {
            host_id,
            generation: generation.or(seen.map(|seen| seen.generation)).unwrap_or(0),
            name: Text(seen.map(|seen| seen.name.clone()).unwrap_or_default()),
            this_host,
            mode: holding.map(|(_, mode)| mode),
            state: outlook.state(),
            io_timeout_s: seen.map(|seen| seen.io_timeout.secs()),
            last_renewal_s: seen
                .filter(|_| outlook != Outlook::Earlier)
                .and_then(|seen| seen.silence.since_renewal()),
            takeover_s: outlook.takeover_secs(),
            damage: damage.map(ToString::to_string),
            outlook,
        }
    }
}

impl ResourceReport {
    fn fill(&mut self, found: &Inspection) {
        self.lease_version = found.leader.lver.get();
        self.sector_size = Some(found.geometry.sector().bytes());
        self.agreed = found.agreed;
        self.released_by = found.released.map(|holder| holder.host.get());
        self.contenders = found.contenders.iter().map(|host| host.get()).collect();
        // What was asked for up to this version somebody has given up meanwhile; the request stays where it is.
        let request = found.request.filter(|(lease_version, _)| *lease_version > self.lease_version);
        self.request = request.map(|(lease_version, force_mode)| RequestReport { lease_version, force_mode });
        self.damaged = found.damaged.iter().map(|error| error.host.get()).collect();
    }
}

fn holders_of(found: &Inspection) -> Vec<Holder> {
    let mode = |timestamp: Option<u64>| if timestamp.is_some() { Mode::Exclusive } else { Mode::Shared };
    found.holders().map(|holder| (holder.host.get(), holder.generation, mode(holder.timestamp))).collect()
}

fn disk_report(disk: &DiskSpec, area: &Result<Vec<u8>, StorageError>) -> DiskReport {
    let error = area.as_ref().err().map(ToString::to_string);
    DiskReport { path: Text(disk.path.clone()), offset: disk.offset, error }
}

fn lockspace_report(
    name: Name,
    place: &DiskSpec,
    our_host_id: Option<u64>,
    records: &Records,
) -> LockspaceReport {
    let (damaged, error) = match records {
        Records::NotLooked => (None, None),
        Records::Looked(damaged) => (Some(damaged.iter().map(|(host, _)| host.get()).collect()), None),
        Records::Unread(error) => (None, Some(error.to_string())),
    };
    LockspaceReport {
        name: Text::from(name.as_bytes()),
        path: Text(place.path.clone()),
        offset: place.offset,
        our_host_id,
        damaged,
        error,
    }
}

/// Where a lockspace may be that nobody named: on a disk of its resource.
fn search_lockspace(name: Name, disks: &[DiskSpec]) -> Option<DiskSpec> {
    disks.iter().find_map(|disk| {
        let wanted = |area, leader: &sanlock_lease::record::RawLeader| {
            area == Area::Lockspace && name.matches(&leader.space_name)
        };
        disk::search(&disk.path, 0, wanted).ok().and_then(Search::found)
    })
}

//! What is not asked, because the two are known to differ then, or the original would crash or hang.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sanlock_conformance::raw::{SELF, cmd, flag};

use crate::disk;
use crate::ground::{AREA, Class, ENTRIES, ENTRY_NAMES, INDEX, SPACES, THIRD, TWO, class_of};
use crate::request::{Data2, Lease, Part, Request, Step, Where, Who};
use crate::side::CLIENTS;
use crate::state::{Held, State};

/// How long an event stands with io timeout 1 or 2, with a second or two for the whole seconds by which the original counts.
const EVENT_STANDS: std::ops::Range<Duration> = Duration::from_secs(4)..Duration::from_secs(15);

/// A renewal of a lockspace with io timeout 1 or 2 has come within this time.
const WRITTEN: Duration = Duration::from_secs(5);

/// What the state does not tell.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Clients whose connection is not heard any more (RESTRICT_ALL).
    deaf: BTreeSet<Who>,
    event: Option<Instant>,
    /// Leases that some process wanted to be kept.
    persistent: BTreeSet<&'static str>,
}

impl Memory {
    /// Takes note of a step that was made.
    pub(crate) fn note(&mut self, step: &Step, result: Option<i32>) {
        match step {
            Step::Register(n) | Step::Kill(n) | Step::HangUp(n) => {
                self.deaf.remove(&Who::Client(*n));
            }
            Step::Ask(who, request) if result == Some(0) => match request.cmd {
                cmd::RESTRICT if request.flags & flag::RESTRICT_ALL != 0 => {
                    self.deaf.insert(*who);
                }
                cmd::SET_EVENT | cmd::REQUEST => self.event = Some(Instant::now()),
                cmd::ACQUIRE => {
                    let kept = request.leases().filter(|lease| lease.flags & flag::RES_PERSISTENT != 0);
                    self.persistent.extend(kept.map(|lease| lease.name));
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Why a step is not made, if it is not.
    pub(crate) fn avoid(
        &self,
        step: &Step,
        state: &State,
        alive: &[bool; CLIENTS],
        dir: &Path,
    ) -> Option<&'static str> {
        match step {
            Step::Register(n) => alive[*n].then_some("it lives"),
            Step::Kill(n) | Step::HangUp(n) => (!alive[*n]).then_some("it does not live"),
            Step::Listen(_) => None,
            Step::Ask(who, request) => {
                if matches!(who, Who::Client(n) if !alive[*n]) {
                    return Some("it does not live");
                }
                if self.deaf.contains(who) {
                    return Some("it is not heard");
                }
                self.avoid_request(*who, request, state, dir)
            }
        }
    }

    fn avoid_request(&self, who: Who, request: &Request, state: &State, dir: &Path) -> Option<&'static str> {
        let registered = matches!(who, Who::Client(_));
        let fresh = who == Who::Fresh;
        match request.cmd {
            cmd::STATUS | cmd::HOST_STATUS | cmd::RENEWAL | cmd::LOG_DUMP if registered => {
                Some("the answer has no end there")
            }
            cmd::RESTRICT if !registered && request.flags & flag::RESTRICT_ALL != 0 => {
                Some("a connection that is not heard any more is of no use")
            }
            cmd::KILLPATH if request.data2 != Data2::Number(SELF) => Some("reads another socket"),
            cmd::ACQUIRE if self.again(who, request, state) => Some(
                "one process, twice the same: which of the two is the first goes by slots that are used again",
            ),
            cmd::ACQUIRE => avoid_acquire(request, state),
            cmd::CONVERT => avoid_convert(request, state),
            cmd::RELEASE if request.flags & 7 == flag::RELEASE_RENAME => avoid_rename(request, state),
            cmd::SET_LVB | cmd::GET_LVB => {
                let lease = request.leases().next()?;
                if lease.lockspace == THIRD {
                    return Some("an area without room for a value block (W7)");
                }
                if request.cmd == cmd::GET_LVB {
                    return None;
                }
                let long =
                    request.parts.iter().any(|part| matches!(part, Part::Bytes(_, length) if *length > 512));
                if long && !fresh {
                    return Some("what is too long is read as headers");
                }
                let shared = state.find(lease.lockspace, lease.name).is_some_and(|held| held.shared);
                shared.then_some("a value set by a shared holder is lost (W31)")
            }
            cmd::REQUEST => {
                let lease = request.leases().next()?;
                if lease.disks.len() > 1 && lease.lver == 0 && request.data == 0 {
                    return Some(
                        "of several disks ours clears the request where the lease is, and the original on the first",
                    );
                }
                let harmless = class_of(lease.name) == Some(Class::Requested);
                (!harmless).then_some("the helper may be made to kill the daemon (W42)")
            }
            cmd::REM_LOCKSPACE if registered => {
                Some("does not notice the end of the process that asks (socket-protocol.md 2.5)")
            }
            cmd::REM_LOCKSPACE => self.avoid_leaving(request, state),
            cmd::SHUTDOWN_WAIT if state.spaces.is_empty() => Some("would be the end"),
            cmd::ADD_LOCKSPACE => avoid_joining(request, state),
            cmd::SET_EVENT => {
                let stands = self.event.is_some_and(|event| EVENT_STANDS.contains(&event.elapsed()));
                stands.then_some("whether an event still stands is a matter of a second")
            }
            cmd::WRITE_LOCKSPACE | cmd::WRITE_RESOURCE | cmd::FORMAT_RINDEX => {
                avoid_formatting(request, state)
            }
            cmd::CREATE_RESOURCE | cmd::DELETE_RESOURCE | cmd::UPDATE_RINDEX | cmd::REBUILD_RINDEX => {
                avoid_index(request, state, dir)
            }
            _ => None,
        }
    }

    /// How long to wait until a renewal has written what events there are: a lockspace may be left with or without the last one.
    pub(crate) fn until_written(&self, step: &Step) -> Option<Duration> {
        let leaves = matches!(step, Step::Ask(_, request) if request.cmd == cmd::REM_LOCKSPACE);
        let since = self.event.filter(|_| leaves)?.elapsed();
        WRITTEN.checked_sub(since)
    }

    /// Whether a process wants what it holds shared once more, and one of the two is to be kept when it ends.
    fn again(&self, who: Who, request: &Request, state: &State) -> bool {
        let target = match (request.data2, who) {
            (Data2::Client(n), _) | (Data2::Number(_), Who::Client(n)) => format!("client{n}."),
            _ => return false,
        };
        request.leases().any(|lease| {
            let kept = lease.flags & flag::RES_PERSISTENT != 0 || self.persistent.contains(lease.name);
            kept && state.held.iter().any(|held| held.name == lease.name && held.of.starts_with(&target))
        })
    }

    fn avoid_leaving(&self, request: &Request, state: &State) -> Option<&'static str> {
        let space = state.space(request.lockspace()?)?;
        let used = space.used || space.used_by_orphans;
        if used && request.flags & flag::REM_ASYNC == 0 {
            return Some("waits for ever");
        }
        let lost = |held: &Held| held.lockspace == space.name && self.persistent.contains(held.name.as_str());
        (space.used_by_orphans && state.held.iter().any(lost))
            .then_some("a persistent lease of a process that is killed, with USED_BY_ORPHANS")
    }
}

fn avoid_acquire(request: &Request, state: &State) -> Option<&'static str> {
    if request.flags & flag::ACQUIRE_ORPHAN_ONLY != 0 && request.flags & flag::ACQUIRE_LVB == 0 {
        return Some("ORPHAN_ONLY without an orphan");
    }
    let adopts = flag::ACQUIRE_ORPHAN | flag::ACQUIRE_ORPHAN_ONLY;
    let orphan = |lease: &Lease| state.find(lease.lockspace, lease.name).is_some_and(|held| held.orphan);
    if request.data > 1 && request.flags & adopts != 0 && request.leases().any(orphan) {
        return Some("an orphan of a request that fails");
    }
    for lease in request.leases() {
        let shared = lease.flags & flag::RES_SHARED != 0;
        if shared && matches!(class_of(lease.name), Some(Class::Requested) | None) {
            return Some("the helper may be made to kill the daemon (W42)");
        }
        if class_of(lease.name) == Some(Class::Odd) {
            return Some("sizes of a resource other than its lockspace's (W44)");
        }
        if lease.flags & flag::RES_NUM_HOSTS != 0 && !matches!(lease.data32, 0 | 2000) {
            return Some("a number of hosts that does not fit (W40)");
        }
        if lease.disks.len() > 1 && lease.disks[0] != (Where::Leases, TWO * AREA) {
            return Some("a disk of several that has another lease, or none (decision 20)");
        }
        if lease.name == "rindex_lease" {
            return Some("the lease of an index, wanted by its name");
        }
    }
    None
}

fn avoid_joining(request: &Request, state: &State) -> Option<&'static str> {
    // Whatever is done to a lockspace whose end is held off is asked of LS alone.
    let other_host_id =
        request.parts.iter().any(|part| matches!(part, Part::Lockspace { host_id: 250.., .. }));
    let known = request.lockspace().is_some_and(|name| state.space(name).is_some());
    (other_host_id && !known && request.flags & flag::ADD_ASYNC != 0).then_some("a join that fails later")
}

fn avoid_convert(request: &Request, state: &State) -> Option<&'static str> {
    let lease = request.leases().next()?;
    if class_of(lease.name) != Some(Class::Shared) {
        return Some("the helper may be made to kill the daemon (W42)");
    }
    let holders =
        state.held.iter().filter(|held| held.lockspace == lease.lockspace && held.name == lease.name).count();
    (holders > 1).then_some("the other local shared holders are not looked at (CE5)")
}

fn avoid_rename(request: &Request, state: &State) -> Option<&'static str> {
    let mut leases = request.leases();
    let (old, new) = (leases.next()?, leases.next()?);
    if new.name.is_empty() {
        return Some("renaming to an empty name");
    }
    let class = class_of(old.name);
    if class.is_none() || class != class_of(new.name) {
        return Some("a name of another class");
    }
    let shared = state.find(old.lockspace, old.name).is_some_and(|held| held.shared);
    shared.then_some("renaming a shared lease")
}

/// Formats what nobody uses only: the original formats everything.
fn avoid_formatting(request: &Request, state: &State) -> Option<&'static str> {
    let space = |at: (Where, u64)| SPACES.iter().find(|(_, known)| *known == at).map(|(name, _)| *name);
    if state.spaces.iter().any(|space| space.offset % AREA != 0) {
        return Some("a lockspace that reaches into the area of a lease");
    }
    for part in &request.parts {
        match part {
            Part::Lockspace { at, .. }
                if at.0 != Where::Missing && space(*at).is_none_or(|name| state.space(name).is_some()) =>
            {
                return Some("over a lockspace that is joined");
            }
            Part::Resource(lease) => {
                let used = state.held.iter().any(|held| class_of(&held.name) == class_of(lease.name));
                if used || class_of(lease.name).is_none() {
                    return Some("over a lease that may be held");
                }
            }
            Part::Index { at: (_, offset), .. } => {
                let used = state.held.iter().any(|held| ENTRY_NAMES.contains(&held.name.as_str()));
                if *offset != INDEX * AREA || used {
                    return Some("an index elsewhere");
                }
            }
            _ => {}
        }
    }
    None
}

fn avoid_index(request: &Request, state: &State, dir: &Path) -> Option<&'static str> {
    let names = index_names(dir);
    let used = state.held.iter().any(|held| ENTRY_NAMES.contains(&held.name.as_str()));
    for part in &request.parts {
        if let Part::Entry { name, .. } = part {
            let there = names.iter().any(|known| known == name);
            if request.cmd == cmd::CREATE_RESOURCE && there {
                return Some("a name created twice in an index (W41)");
            }
            if request.cmd == cmd::UPDATE_RINDEX && there && !name.is_empty() {
                return Some("a name entered twice");
            }
        }
    }
    let mut leases = disk::lease_names(dir, ENTRIES);
    leases.sort();
    if request.cmd == cmd::REBUILD_RINDEX && leases.windows(2).any(|pair| pair[0] == pair[1]) {
        return Some("a rebuild where two areas have one name");
    }
    used.then_some("formats or clears leases that may be held")
}

/// The names in the index, as they are on the disk.
fn index_names(dir: &Path) -> Vec<String> {
    let mut bytes = [0; 4 * 64];
    let read =
        File::open(dir.join("leases")).and_then(|file| file.read_exact_at(&mut bytes, INDEX * AREA + 512));
    read.unwrap_or_else(|error| panic!("the index: {error}"));
    let name = |entry: &[u8]| String::from_utf8_lossy(&entry[16..]).trim_end_matches('\0').to_owned();
    bytes.chunks_exact(64).map(name).filter(|name| !name.is_empty()).collect()
}

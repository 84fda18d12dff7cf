//! The two hosts of a run, each alone on its own copy of the same storage, and one step after another on both.

use std::time::{Duration, Instant};

use sanlock_conformance::raw::{cmd, flag};
use sanlock_conformance::storage::{scratch_dir, sparse_file};
use sanlock_conformance::{Host, Program};
use tempfile::TempDir;

use crate::avoid::Memory;
use crate::disk::{self, Depth};
use crate::excuse;
use crate::ground::{AREA, AREAS, Class, FIRST, INDEX, MORE_AREAS, PLACES, SPACES, THIRD};
use crate::request::{Data2, Lease, Part, Request, Site, Step, Where, Who};
use crate::side::{CLIENTS, Reply, Side};
use crate::state::State;

/// Both hosts are in the same state within this time, whatever either does in the background.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// A question that changes nothing has the same answer within this time.
const AGAIN_LIMIT: Duration = Duration::from_secs(6);
/// What an examination leads to has begun within this time.
const EXAMINED: Duration = Duration::from_millis(400);
/// A join lasts longer than this, by far.
const JOINING: Duration = Duration::from_millis(700);
/// Lines of each log that are shown.
const LOG_LINES: usize = 6;
/// Streams that are kept open.
const STREAMS: usize = 3;
/// Steps after which everything is compared though nothing has changed.
pub(crate) const LOOK_EVERY: usize = 10;

/// Where the two are not alike.
#[derive(Debug, Clone)]
pub(crate) struct Divergence {
    /// `reply`, `state` or `disk`.
    pub(crate) what: &'static str,
    pub(crate) reference: String,
    pub(crate) ours: String,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Avoided(&'static str),
    Excused(&'static str),
    /// From here on the two cannot be compared any more.
    Parted(&'static str),
    Same(Option<i32>),
}

/// Both hosts.
pub(crate) struct Pair {
    reference: Side,
    ours: Side,
    memory: Memory,
    requested: bool,
    /// Since when both join a lockspace.
    joining: Option<Instant>,
    state: State,
    // Removed last.
    _dir: TempDir,
}

impl Pair {
    /// Starts both daemons on new storage, and joins the lockspace `LS`.
    pub(crate) fn start() -> Self {
        let dir = scratch_dir("twins");
        let [reference, ours] =
            [(Program::Reference, "orig"), (Program::Ours, "ours")].map(|(program, word)| {
                let site = Site { dir: dir.path().join(word) };
                std::fs::create_dir(&site.dir).unwrap_or_else(|error| panic!("{word}: {error}"));
                sparse_file(&site.dir.join("leases"), AREAS * AREA);
                sparse_file(&site.dir.join("more"), MORE_AREAS * AREA);
                sparse_file(&site.dir.join("large"), MORE_AREAS * AREA);
                let host = Host::start_with(program, program, "twin", &["-o", "1"]);
                let mut side = Side::new(host, site);
                lay_out(&mut side);
                side
            });
        let state = State { lines: Vec::new(), held: Vec::new(), spaces: Vec::new(), quiet: false };
        let mut pair = Self {
            reference,
            ours,
            memory: Memory::default(),
            requested: false,
            joining: None,
            state,
            _dir: dir,
        };
        let join = Request { data: 1, ..Request::new(cmd::ADD_LOCKSPACE, vec![space(SPACES[0])]) };
        let joined = pair.replies(Who::Fresh, &join);
        assert_eq!((joined.0.result(), joined.1.result()), (Some(0), Some(0)), "joining {FIRST}");
        if let Some(difference) = pair.settle(Depth::All) {
            panic!("the two hosts differ from the beginning: {difference:?}");
        }
        pair
    }

    fn alive(&self) -> [bool; CLIENTS] {
        std::array::from_fn(|n| self.reference.has(n) && self.ours.has(n))
    }

    /// Makes a step on both.
    ///
    /// # Errors
    /// Where they differ.
    pub(crate) fn step(&mut self, step: &Step, look: bool) -> Result<Outcome, Divergence> {
        let while_joining = self.while_joining(step)?;
        let ours_dir = self.ours.site.dir.clone();
        if let Some(why) = self.memory.avoid(step, &self.state, &self.alive(), &ours_dir) {
            return Ok(Outcome::Avoided(why));
        }
        if let Some(pause) = self.memory.until_written(step) {
            std::thread::sleep(pause);
        }
        let mut excused = None;
        let mut result = None;
        let mut settle = look;
        match step {
            Step::Register(n) => self.both(|side| side.register(*n)),
            Step::Kill(n) => self.both(|side| side.end(*n, true)),
            Step::HangUp(n) => self.both(|side| side.end(*n, false)),
            Step::Listen(request) => {
                self.both(|side| {
                    side.open_streams(STREAMS);
                });
                let replies = (self.reference.listen(request), self.ours.listen(request));
                (excused, result) = self.compare(request, &replies)?;
            }
            Step::Ask(who, request) => {
                let mut replies = self.replies(*who, request);
                if request.only_reads() {
                    let begin = Instant::now();
                    while replies.0 != replies.1 && begin.elapsed() < AGAIN_LIMIT {
                        std::thread::sleep(Duration::from_millis(100));
                        replies = self.replies(*who, request);
                    }
                }
                if let Some(why) = excuse::parting(request, &replies.0, &replies.1, &self.reference.site.dir)
                {
                    return Ok(Outcome::Parted(why));
                }
                (excused, result) = self.compare(request, &replies)?;
                if request.cmd == cmd::ACQUIRE && result == Some(0) {
                    self.note_adopted(request);
                }
                settle |= !request.only_reads();
                self.requested |= request.cmd == cmd::REQUEST && result == Some(0);
                if self.requested && matches!(request.cmd, cmd::EXAMINE_LOCKSPACE | cmd::EXAMINE_RESOURCE) {
                    std::thread::sleep(EXAMINED);
                }
            }
        }
        self.memory.note(step, result);
        if result == Some(0) && self.begins_to_join(step) {
            self.joining = Some(Instant::now());
            return Ok(Outcome::Same(result));
        }
        if while_joining {
            return Ok(Outcome::Same(result));
        }
        if settle || !matches!(step, Step::Ask(..)) {
            if let Some(difference) = self.settle(if look { Depth::All } else { Depth::Usual }) {
                return Err(difference);
            }
        }
        Ok(excused.map_or(Outcome::Same(result), Outcome::Excused))
    }

    /// Whether the step is made while both hosts join the same lockspace, which they know in the same state for this short time. Otherwise
    /// the end of the join is waited for.
    fn while_joining(&mut self, step: &Step) -> Result<bool, Divergence> {
        let Some(since) = self.joining else { return Ok(false) };
        let about = matches!(step, Step::Ask(_, request) if request.about_lockspaces());
        if about && since.elapsed() < JOINING {
            return Ok(true);
        }
        self.joining = None;
        self.settle(Depth::Usual).map_or(Ok(false), Err)
    }

    /// Whether the step is a join that will succeed, and whose reply does not wait for it.
    fn begins_to_join(&self, step: &Step) -> bool {
        let Step::Ask(_, request) = step else { return false };
        let right = request.parts.iter().any(|part| {
            matches!(part, Part::Lockspace { name, host_id: 1, at, .. } if SPACES.contains(&(*name, *at)))
        });
        let known = request.lockspace().is_some_and(|name| self.state.space(name).is_some());
        request.cmd == cmd::ADD_LOCKSPACE && request.flags & flag::ADD_ASYNC != 0 && right && !known
    }

    fn note_adopted(&mut self, request: &Request) {
        for lease in request.leases() {
            let orphan = self.state.find(lease.lockspace, lease.name).is_some_and(|held| held.orphan);
            self.both(|side| {
                if orphan {
                    side.adopted.insert(lease.name.to_owned());
                } else {
                    side.adopted.remove(lease.name);
                }
            });
        }
    }

    fn both(&mut self, act: impl Fn(&mut Side)) {
        act(&mut self.reference);
        act(&mut self.ours);
    }

    fn replies(&mut self, who: Who, request: &Request) -> (Reply, Reply) {
        let (reference, ours) = (self.reference.send(who, request), self.ours.send(who, request));
        (self.reference.receive(who, request, reference), self.ours.receive(who, request, ours))
    }

    fn compare(
        &self,
        request: &Request,
        (reference, ours): &(Reply, Reply),
    ) -> Result<(Option<&'static str>, Option<i32>), Divergence> {
        if reference == ours {
            return Ok((None, ours.result()));
        }
        if let Some(reason) = excuse::reply(request, reference, ours, &self.state) {
            return Ok((Some(reason), ours.result()));
        }
        Err(Divergence { what: "reply", reference: reference.shown(), ours: ours.shown() })
    }

    /// Waits until both are at rest in the same state.
    fn settle(&mut self, depth: Depth) -> Option<Divergence> {
        let begin = Instant::now();
        let mut pause = 1;
        loop {
            let difference = self.look(depth);
            if difference.is_none() || begin.elapsed() > SETTLE_LIMIT {
                return difference;
            }
            std::thread::sleep(Duration::from_millis(pause));
            pause = (2 * pause).min(50);
        }
    }

    fn look(&mut self, depth: Depth) -> Option<Divergence> {
        let (reference, ours) = (State::of(&mut self.reference), State::of(&mut self.ours));
        let state = reference.difference(&ours);
        let restless = !(reference.quiet && ours.quiet);
        self.state = ours.clone();
        if let Some((reference, ours)) = state {
            return Some(Divergence { what: "state", reference, ours });
        }
        if restless {
            let shown = |state: &State| format!("quiet {}: {:#?}", state.quiet, state.lines);
            return Some(Divergence { what: "rest", reference: shown(&reference), ours: shown(&ours) });
        }
        let disk = disk::difference(&self.reference.site.dir, &self.ours.site.dir, depth);
        disk.map(|(reference, ours)| Divergence { what: "disk", reference, ours })
    }

    /// The last lines of each daemon's log.
    pub(crate) fn logs(&self) -> String {
        let last = |side: &Side| {
            let log = side.host.log();
            let lines: Vec<&str> = log.lines().filter(|line| !line.contains("cmd_status")).collect();
            lines[lines.len().saturating_sub(LOG_LINES)..].join("\n    ")
        };
        format!(
            "  log of the original:\n    {}\n  log of ours:\n    {}",
            last(&self.reference),
            last(&self.ours)
        )
    }

    /// Ends both by a forced shutdown that is waited for.
    ///
    /// # Errors
    /// When one does not end like the other.
    pub(crate) fn end(mut self) -> Result<(), Divergence> {
        if let Some(difference) = self.settle(Depth::All) {
            return Err(difference);
        }
        // Nothing holds off the end of a lockspace.
        for (space_of, data) in SPACES.into_iter().flat_map(|space_of| [(space_of, 2), (space_of, 8)]) {
            let request = Request { data, ..Request::new(cmd::SET_CONFIG, vec![space(space_of)]) };
            let _ = self.replies(Who::Fresh, &request);
        }
        let leave = Step::Ask(Who::Fresh, Request::new(cmd::REM_LOCKSPACE, Vec::new()));
        if let Some(pause) = self.memory.until_written(&leave) {
            std::thread::sleep(pause);
        }
        let request = Request { data: 1, ..Request::new(cmd::SHUTDOWN_WAIT, Vec::new()) };
        let (reference, ours) = self.replies(Who::Fresh, &request);
        let statuses = [&mut self.reference, &mut self.ours]
            .map(|side| side.host.wait_for_end(Duration::from_secs(30)).to_string());
        if reference != ours || statuses[0] != statuses[1] {
            let shown = |reply: Reply, status: &str| format!("{}, {status}", reply.shown());
            let (reference, ours) = (shown(reference, &statuses[0]), shown(ours, &statuses[1]));
            return Err(Divergence { what: "end", reference, ours });
        }
        let disk = disk::difference(&self.reference.site.dir, &self.ours.site.dir, Depth::All);
        disk.map_or(Ok(()), |(reference, ours)| Err(Divergence { what: "disk at the end", reference, ours }))
    }
}

fn space((name, at): (&'static str, (Where, u64))) -> Part {
    let flags = if name == THIRD { flag::SECTOR4K | flag::ALIGN1M } else { 0 };
    Part::Lockspace { name, host_id: 1, flags, at }
}

/// Writes the lockspaces, the leases and the index through the daemon itself.
fn lay_out(side: &mut Side) {
    let mut write = |request: Request| {
        let pending = side.send(Who::Fresh, &request);
        let reply = side.receive(Who::Fresh, &request, pending);
        assert_eq!(reply.result(), Some(0), "laying out: {request:?}: {reply:?}");
    };
    for known in SPACES {
        let data2 = Data2::Number(1);
        write(Request { data2, ..Request::new(cmd::WRITE_LOCKSPACE, vec![space(known)]) });
    }
    for place in PLACES {
        let disks = place.disks();
        let odd = place.class == Class::Odd || place.lockspace == THIRD;
        let flags = if odd { flag::SECTOR4K | flag::ALIGN1M } else { 0 };
        let num_disks = u32::try_from(disks.len()).unwrap_or(0);
        let (lockspace, name) = (place.lockspace, place.name);
        let lease = Lease { lockspace, name, lver: 0, data32: 0, flags, num_disks, disks };
        write(Request::new(cmd::WRITE_RESOURCE, vec![Part::Resource(lease)]));
    }
    let at = (Where::Leases, INDEX * AREA);
    let index = Part::Index { lockspace: FIRST, at, flags: 0, max_resources: 4 };
    write(Request::new(cmd::FORMAT_RINDEX, vec![index]));
}

//! One client of the run: a process with one registered connection, what it holds, and the operations it does. Every operation is
//! judged, proved, and reported in one line on standard output: `OPERATION RESULT MILLISECONDS`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::checks::number_of;
use super::codes;
use super::proof::{Mode, NOT_SURE, Proof, now_ms};
use super::site::{Class, OTHER_NAME, SPOTS, Site};
use crate::program::Program;
use crate::raw::{Connection, Header, Resource, SELF, cmd, flag};

/// Longest wait for one reply: an acquire may wait until it sees the owner's next renewal, and meet several busy ballots.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// Printed before a lease is acquired that others ask for.
pub(super) const ASKED_BEGUN: &str = "asked-begun";
/// Printed when it was granted.
pub(super) const ASKED_GRANTED: &str = "asked-granted";

/// What a client is told about itself.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Names it in messages.
    pub label: String,
    /// Run directory of its daemon.
    pub run_dir: PathBuf,
    /// Its host.
    pub host_id: u64,
    /// What its daemon is.
    pub program: Program,
}

/// A lease this client holds.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Index into [`SPOTS`].
    pub spot: usize,
    /// Under which name.
    pub name: &'static str,
    /// How.
    pub mode: Mode,
    /// With the lock value block in the daemon's memory.
    pub valued: bool,
    /// Whether the daemon keeps it when the client goes.
    pub persistent: bool,
    baton: bool,
}

/// One lease of an acquire.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Index into [`SPOTS`].
    pub spot: usize,
    /// Under which name.
    pub name: &'static str,
    /// How.
    pub mode: Mode,
    /// Whether the daemon is to keep it.
    pub persistent: bool,
    /// Which version must be on disk before.
    pub demand: Option<u64>,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Who it is.
    pub me: Identity,
    /// Where everything lies.
    pub site: Site,
    /// Its leases.
    pub held: Vec<Held>,
    pub(super) proof: Proof,
    pub(super) connection: Connection,
}

impl Client {
    /// Connects and registers.
    ///
    /// # Panics
    /// When the daemon cannot be reached.
    #[must_use]
    pub fn start(me: Identity, site: Site) -> Self {
        // Before the connection: see `proof`.
        let proof = Proof::open(site.dir());
        let connection = registered(&me);
        Self { me, site, held: Vec::new(), proof, connection }
    }

    /// The registered connection.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// A further connection, not registered.
    ///
    /// # Panics
    /// When the daemon cannot be reached.
    #[must_use]
    pub fn plain(&self) -> Connection {
        connect(&self.me)
    }

    /// The lease this client holds on a spot.
    #[must_use]
    pub fn hold_on(&self, spot: usize) -> Option<Held> {
        self.held.iter().copied().find(|held| held.spot == spot)
    }

    /// Judges and reports the result of an operation.
    ///
    /// # Panics
    /// When the operation may not have it.
    pub fn judge(&self, words: &str, code: i32, begun: Instant) -> i32 {
        assert!(
            codes::expected(words, code, self.me.program),
            "UNEXPECTED: {}: {words} gave {code} at {}, holding {:?}",
            self.me.label,
            now_ms(),
            self.held
        );
        println!("{words} {code} {}", begun.elapsed().as_millis());
        code
    }

    /// The baton of a spot, for a shared hold, where one is needed. `None`: another process of this host has it, or is dead and its last
    /// command goes on.
    fn baton(&mut self, spot: usize) -> Option<bool> {
        if !SPOTS[spot].needs_baton(self.me.program) {
            return Some(false);
        }
        let host_id = self.me.host_id;
        let last = self.proof.take_baton(host_id, spot)?;
        // A process is unknown once its connection, and whatever came over it, has ended.
        if last != 0 && last != std::process::id() && self.connection.inquire(Some(last)).result != -3 {
            self.proof.give_baton(host_id, spot, false);
            return None;
        }
        self.proof.sign_baton(host_id, spot);
        Some(true)
    }

    /// Acquires all of `wanted` or nothing, and proves it. `words` say what the flags mean.
    ///
    /// # Panics
    /// On an unexpected result, and when anything shows that somebody else holds one of them, or what was promised about it is not so.
    pub fn acquire(&mut self, wanted: &[Wanted], flags: u32, words: &str) -> i32 {
        let mut batons = Vec::new();
        for want in wanted {
            match if want.mode == Mode::Shared { self.baton(want.spot) } else { Some(false) } {
                Some(baton) => batons.push(baton),
                None => {
                    self.give_batons(wanted, &batons);
                    return -16;
                }
            }
        }
        let resources: Vec<Resource> = wanted.iter().map(|want| self.described(want)).collect();
        let asked = wanted.iter().any(|want| SPOTS[want.spot].class == Class::Asked);
        if asked {
            // From here on a signal may end this process: it may come before the answer.
            println!("{ASKED_BEGUN} 0 0");
        }
        let begun = Instant::now();
        let code = self.busy(|connection| connection.acquire(&resources, flags, None));
        if code == 0 {
            for want in wanted {
                self.prove(want.spot, want.mode);
            }
        }
        self.judge(words, code, begun);
        if code != 0 {
            self.give_batons(wanted, &batons);
            return code;
        }
        if asked {
            println!("{ASKED_GRANTED} 0 0");
        }
        for (want, baton) in wanted.iter().zip(batons) {
            let valued = flags & flag::ACQUIRE_LVB != 0;
            let Wanted { spot, name, mode, persistent, .. } = *want;
            self.held.push(Held { spot, name, mode, valued, persistent, baton });
        }
        let adopting = flags & (flag::ACQUIRE_ORPHAN | flag::ACQUIRE_ORPHAN_ONLY) != 0;
        for want in wanted {
            if want.mode == Mode::Exclusive {
                let lver = self.lver(want.spot);
                self.enter(want, lver, adopting);
            }
            self.no_orphan_of_others(want.spot);
            self.check_value(want.spot);
        }
        0
    }

    fn described(&self, want: &Wanted) -> Resource {
        let mut resource = self.site.resource(&SPOTS[want.spot], want.name);
        if want.mode == Mode::Shared {
            resource = resource.shared();
        }
        if let Some(lver) = want.demand {
            resource = resource.with_lver(lver);
        }
        if want.persistent {
            resource.flags |= flag::RES_PERSISTENT;
        }
        resource
    }

    fn give_batons(&self, wanted: &[Wanted], batons: &[bool]) {
        for (want, baton) in wanted.iter().zip(batons) {
            if *baton {
                self.proof.give_baton(self.me.host_id, want.spot, true);
            }
        }
    }

    /// A command on this client's leases. The original releases persistent leases too when the client dies during one.
    fn busy<T>(&mut self, command: impl FnOnce(&mut Connection) -> T) -> T {
        let kept = self.keeps_nothing(&self.held);
        let result = command(&mut self.connection);
        for spot in kept.into_iter().filter(|spot| self.hold_on(*spot).is_some()) {
            self.proof.ledger(spot, |entry| {
                (entry.keeper, entry.kept_lver) = (self.me.host_id, entry.lver);
            });
        }
        result
    }

    /// See [`Self::busy`]. Returns what was kept.
    fn keeps_nothing(&self, held: &[Held]) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::new();
        if self.me.program == Program::Reference {
            kept.extend(held.iter().filter(|held| held.persistent).map(|held| held.spot));
            kept.retain(|spot| self.keep_no_more(*spot));
        }
        kept
    }

    /// Takes the lock of the proof.
    fn prove(&self, spot: usize, mode: Mode) {
        if let Err(pid) = self.proof.hold(spot, mode) {
            let last = self.proof.ledger(spot, |entry| *entry);
            panic!(
                "OVERLAP: {} (pid {}) was granted {} {mode:?} at {}, which pid {pid} holds; exclusive last: {last:?}",
                self.me.label,
                std::process::id(),
                SPOTS[spot].name,
                now_ms()
            );
        }
    }

    /// The version of a lease held exclusively, as the daemon lists it.
    fn lver(&mut self, spot: usize) -> u64 {
        let Some(held) = self.hold_on(spot) else { panic!("spot {spot} is not held") };
        let begun = Instant::now();
        let answer = self.busy(|connection| connection.inquire(None));
        self.judge("inquire", answer.result, begun);
        assert_eq!(answer.count as usize, self.held.len(), "UNEXPECTED: {}: {answer:?}", self.me.label);
        let lockspace = super::site::LOCKSPACES[SPOTS[spot].lockspace].0;
        let start = format!("{lockspace}:{}:", held.name);
        let items = answer.items();
        let item = items.iter().find(|item| item.starts_with(&start));
        let lver = item.and_then(|item| item.rsplit(':').next()).and_then(|word| word.parse().ok());
        lver.unwrap_or_else(|| panic!("UNEXPECTED: {}: no version of {start} in {items:?}", self.me.label))
    }

    /// Converts a lease.
    ///
    /// # Panics
    /// As [`Self::acquire`].
    pub fn convert(&mut self, spot: usize, mode: Mode, nowait: bool) -> i32 {
        let Some(index) = self.held.iter().position(|held| held.spot == spot) else { return -2 };
        let want = Wanted { spot, name: self.held[index].name, mode, persistent: false, demand: None };
        if mode == Mode::Shared {
            // Shared from here on, for all that others can know.
            let Some(baton) = self.baton(spot) else { return -16 };
            self.held[index].baton = baton;
            self.prove(spot, mode);
        }
        let flags = if nowait { flag::ACQUIRE_OWNER_NOWAIT } else { 0 };
        let bytes = self.described(&want).encode_bare();
        let begun = Instant::now();
        let code = self.busy(|connection| connection.request(cmd::CONVERT, flags, 0, SELF, &bytes).result());
        if code == 0 && mode == Mode::Exclusive {
            self.prove(spot, mode);
        }
        let words = match (mode, nowait) {
            (Mode::Shared, _) => "to-shared",
            (Mode::Exclusive, false) => "to-exclusive",
            (Mode::Exclusive, true) => "to-exclusive+nowait",
        };
        self.judge(words, code, begun);
        if code != 0 {
            return code;
        }
        self.held[index].mode = mode;
        if mode == Mode::Exclusive {
            if std::mem::take(&mut self.held[index].baton) {
                self.proof.give_baton(self.me.host_id, spot, true);
            }
            let lver = self.lver(spot);
            self.enter(&want, lver, false);
        }
        self.check_value(spot);
        0
    }

    /// Gives the leases on `spots` back, in one command; `rename`: under another name.
    ///
    /// # Panics
    /// On an unexpected result.
    pub fn release(&mut self, spots: &[usize], rename: bool) {
        let leaving: Vec<Held> =
            self.held.iter().copied().filter(|held| spots.contains(&held.spot)).collect();
        let all = leaving.len() == self.held.len() && leaving.len() > 1;
        let mut resources: Vec<Resource> =
            leaving.iter().map(|held| self.site.resource(&SPOTS[held.spot], held.name)).collect();
        if rename {
            let Held { spot, name, .. } = leaving[0];
            let name = if name == OTHER_NAME { SPOTS[spot].name } else { OTHER_NAME };
            resources.push(self.site.resource(&SPOTS[spot], name));
            self.proof.ledger(spot, |entry| entry.name = number_of(name) + NOT_SURE);
        }
        self.letting_go(&leaving);
        let changing = leaving.iter().any(|held| SPOTS[held.spot].class == Class::Renamed);
        let (words, flags) = match (rename, all, changing) {
            (true, ..) => ("release+changing+rename", flag::RELEASE_RENAME),
            (false, true, _) => ("release+all", flag::RELEASE_ALL),
            (false, false, true) => ("release+changing", 0),
            (false, false, false) => ("release", 0),
        };
        let begun = Instant::now();
        self.held.retain(|held| !spots.contains(&held.spot));
        let code =
            self.busy(|connection| connection.release(if all { &[] } else { &resources }, flags, None));
        self.judge(words, code, begun);
        self.give_held_batons(&leaving);
    }

    /// Withdraws the proof: from here on others may be granted these leases.
    pub fn letting_go(&self, leaving: &[Held]) {
        for held in leaving {
            if held.persistent {
                let _ = self.keep_no_more(held.spot);
            }
            self.proof.let_go(held.spot);
        }
    }

    fn give_held_batons(&self, leaving: &[Held]) {
        for held in leaving.iter().filter(|held| held.baton) {
            self.proof.give_baton(self.me.host_id, held.spot, true);
        }
    }

    /// Closes the connection with all leases, after sending `last` if given, whose reply nobody will read; connects again.
    ///
    /// # Panics
    /// When the daemon cannot be reached.
    pub fn hang_up(&mut self, last: Option<(Header, Vec<u8>)>) {
        let leaving = std::mem::take(&mut self.held);
        if last.is_some() {
            let _ = self.keeps_nothing(&leaving);
        }
        for held in &leaving {
            // What is persistent stays: its keeper is in the ledger.
            self.proof.let_go(held.spot);
        }
        println!("{} 0 0", if last.is_some() { "hang-up+busy" } else { "hang-up" });
        if let Some((header, payload)) = last {
            self.connection.send_message(header, &payload);
        }
        // The old connection ends here.
        self.connection = registered(&self.me);
        self.give_held_batons(&leaving);
    }

    /// Forgets that this host keeps a lease, before something that may end that without a word. Whether it did.
    pub fn keep_no_more(&self, spot: usize) -> bool {
        self.proof.ledger(spot, |entry| {
            let keeps = entry.keeper == self.me.host_id;
            if keeps {
                (entry.keeper, entry.kept_lver) = (0, 0);
            }
            keeps
        })
    }

    /// Releases the orphans of one resource, or of all (`None`).
    ///
    /// # Panics
    /// On an unexpected result.
    pub fn release_orphan(&mut self, spot: usize, by_name: bool) {
        let name = if by_name { SPOTS[spot].name } else { "" };
        let resource = self.site.resource(&SPOTS[spot], name);
        let begun = Instant::now();
        // Nobody enters that it keeps the lease before the command has been carried out: it might be for the orphan after that.
        let code = self.proof.ledger(spot, |entry| {
            if entry.keeper == self.me.host_id {
                (entry.keeper, entry.kept_lver) = (0, 0);
            }
            self.connection.release(std::slice::from_ref(&resource), flag::RELEASE_ORPHAN, None)
        });
        self.judge("release-orphan", code, begun);
    }
}

/// A registered connection to the daemon of a client.
fn registered(me: &Identity) -> Connection {
    let mut connection = connect(me);
    connection.register();
    connection
}

fn connect(me: &Identity) -> Connection {
    let mut connection = Connection::open(&me.run_dir)
        .unwrap_or_else(|error| panic!("UNEXPECTED: {}: cannot connect: {error}", me.label));
    connection.set_limit(REPLY_LIMIT);
    connection
}

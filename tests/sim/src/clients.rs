//! Who uses our daemon: processes that want leases, and an administrator who joins lockspaces.
//!
//! A process holds a lease from the success of its acquire on until its release is accepted, it closes its connection, or it
//! ends. It may ignore SIGTERM, be unkillable, leave a descendant behind that keeps the connection open and goes on using the
//! lease, or close its connection and live on. The end of a connection and the end of a process are noticed one by one, in any
//! order. When the daemon dies, processes go on with what they hold.

use crate::clock::{Micros, SECOND};
use crate::daemon::{Message, Source, Thread};
use crate::fault::Fault;
use crate::front::code_of;
use crate::layout;
use crate::notes::Setting as Note;
use crate::sabotage::Sabotage;
use crate::world::{Event, World};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::Held;
use sanlock_lease::text::ResourceSpec;
use sanlock_manager::{
    AcquireFlags, Action, Command, ConnId, Event as Told, KillpathProgram, OrphanUse, Reply, ResourceRequest,
    Target, Work,
};

/// Acquires of a herd start within this time of each other.
const HERD: Micros = 3_000;

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Not ended. If it has, a descendant is what is left of it.
    pub(crate) alive: bool,
    pub(crate) conn: Option<ConnId>,
    /// A command of its own is in progress.
    pub(crate) busy: bool,
    /// It ends with the reply to that.
    pub(crate) leaving: bool,
    /// Tells turns from those planned earlier.
    pub(crate) serial: u32,
    pub(crate) ignores_term: bool,
    pub(crate) unkillable: bool,
    /// It was sent SIGKILL.
    pub(crate) forced: bool,
    pub(crate) leaves_descendant: bool,
    /// How it asks to be stopped.
    pub(crate) manner: Manner,
    /// Other hosts have asked for what it holds, and it is about to be told so many times.
    pub(crate) asked_to_go: u32,
}

/// How a process asks to be stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Signals it asks not to be sent.
    pub(crate) restrictions: u32,
    /// It has a program run that is to stop it.
    pub(crate) killpath: bool,
}

impl Process {
    /// It is told now: whether that is because another host has asked for what it holds.
    pub(crate) fn was_asked(&mut self) -> bool {
        let asked = self.asked_to_go > 0;
        self.asked_to_go = self.asked_to_go.saturating_sub(1);
        asked
    }
}

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Acquire {
        pid: i32,
        /// With the mode: whether shared.
        resources: Vec<(u8, bool)>,
        /// Versions demanded.
        demanded: Vec<(u8, u64)>,
    },
    Convert {
        pid: i32,
        resource: u8,
        shared: bool,
    },
    Release {
        pid: i32,
        resources: Vec<u8>,
        /// Every token of them.
        all: bool,
        /// The name that the only one gets.
        to: Option<Name>,
    },
    /// What it holds.
    Inquire {
        pid: i32,
    },
    GetValue {
        pid: i32,
        resource: u8,
    },
    SetValue {
        pid: i32,
        resource: u8,
        bytes: Vec<u8>,
    },
    /// Orphans to be released.
    Orphans {
        pid: i32,
    },
    /// How it wants to be stopped.
    Introduced {
        pid: i32,
    },
    /// The USED flag of a lockspace.
    Used {
        disk: u8,
        on: bool,
    },
    /// USED_BY_ORPHANS of a lockspace.
    UsedByOrphans {
        disk: u8,
        on: bool,
    },
    /// To be told of host events in a lockspace.
    Listen,
    /// A host event.
    Set {
        setting: Note,
    },
    Other,
}

/// A connection as its client sees it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The process registered on it.
    pub(crate) pid: Option<i32>,
    /// How that asked to be stopped, which is remembered where it has ended and a descendant has the connection.
    pub(crate) manner: Manner,
    pub(crate) asked: Option<Asked>,
    /// The front has read who it is.
    pub(crate) watched: bool,
}

impl World {
    /// A new process of the host.
    pub(crate) fn spawn(&mut self, host: usize) {
        let most = usize::try_from(self.settings.processes).unwrap_or(1);
        let living = self.hosts[host].processes.values().filter(|p| p.alive).count();
        if !self.hosts[host].up || living >= most {
            return;
        }
        let process = Process {
            alive: true,
            conn: None,
            busy: false,
            leaving: false,
            serial: 0,
            ignores_term: self.strikes(Fault::IgnoresTerm),
            unkillable: self.strikes(Fault::Unkillable),
            forced: false,
            leaves_descendant: self.strikes(Fault::Descendant),
            manner: Manner {
                restrictions: if self.strikes(Fault::Restricted) {
                    2 * u32::try_from(self.dice.between(1, 3)).unwrap_or(1)
                } else {
                    0
                },
                killpath: self.strikes(Fault::Killpath),
            },
            asked_to_go: 0,
        };
        let h = &mut self.hosts[host];
        h.last_pid += 1;
        let pid = h.last_pid;
        h.processes.insert(pid, process);
        self.turn_after(host, pid, 1000);
    }

    /// Whether it is there, could be sent SIGKILL, and was not.
    pub(crate) fn is_spared(&self, host: usize, pid: i32) -> bool {
        let process = self.hosts[host].processes.get(&pid);
        process.is_some_and(|p| p.alive && p.manner.restrictions == 0 && !p.forced)
    }

    /// Plans the next turn of a process.
    pub(crate) fn turn_after(&mut self, host: usize, pid: i32, after: Micros) {
        let epoch = self.hosts[host].epoch;
        let Some(process) = self.hosts[host].processes.get_mut(&pid) else { return };
        process.serial += 1;
        let serial = process.serial;
        self.at(self.now + after, Event::Turn { host, epoch, pid, serial });
    }

    /// Before the next acquire; now and then together with everybody else's.
    pub(crate) fn pause_before_acquire(&mut self) -> Micros {
        if self.calm {
            self.dice.between(SECOND / 2, 6 * SECOND)
        } else if self.dice.per_mille(600) {
            let grid = self.settings.pause_ms * 1000 / 8;
            grid - self.now % grid + self.dice.between(0, HERD)
        } else {
            let (longest, in_earnest) = (self.settings.pause_ms * 1000, self.settings.is_earnest());
            self.dice.spread(if in_earnest { longest / 100 } else { 1_000 }, longest)
        }
    }

    /// Hangs a connection on the daemon, if there is one.
    pub(crate) fn connect(&mut self, host: usize, pid: Option<i32>) -> Option<ConnId> {
        let manner =
            pid.and_then(|pid| self.hosts[host].processes.get(&pid)).map(|p| p.manner).unwrap_or_default();
        let daemon = self.daemon(host)?;
        let (conn, ci) = daemon.new_conn();
        daemon.clients.insert(conn.0, Client { pid, manner, asked: None, watched: false });
        self.tell_front(host, conn, Told::ConnOpened { conn, ci });
        if let Some(pid) = pid {
            self.tell_front(host, conn, Told::Command { conn, command: Command::Register { pid } });
        }
        Some(conn)
    }

    pub(crate) fn tell_front(&mut self, host: usize, conn: ConnId, told: Told) {
        self.send(host, Source::Conn(conn), Thread::Front, Message::told(told));
    }

    pub(crate) fn ask(&mut self, host: usize, conn: ConnId, asked: Asked, command: Command) {
        if let Some(client) = self.daemon(host).and_then(|d| d.clients.get_mut(&conn.0)) {
            client.asked = Some(asked);
            self.tell_front(host, conn, Told::Command { conn, command });
        }
    }

    /// A command on a connection of its own, which ends with the reply.
    pub(crate) fn administer(&mut self, host: usize, command: Command) {
        if let Some(conn) = self.connect(host, None) {
            self.ask(host, conn, Asked::Other, command);
        }
    }

    /// A process has its turn.
    pub(crate) fn turn(&mut self, host: usize, pid: i32, serial: u32) {
        let Some(process) = self.hosts[host].processes.get(&pid) else { return };
        if process.serial != serial || !process.alive {
            return;
        }
        let (busy, conn) = (process.busy, process.conn);
        let id = self.hosts[host].id;
        let held = self.checks.held_by(id, pid);
        if busy {
            // It dies while it waits.
            return self.exit(host, pid);
        }
        let Some(conn) = conn else {
            if held.is_empty() {
                let conn = self.connect(host, Some(pid));
                if let Some(process) = self.hosts[host].processes.get_mut(&pid) {
                    process.conn = conn;
                }
                if let Some(conn) = conn.filter(|_| self.introduces_itself(host, pid)) {
                    return self.introduce(host, pid, conn);
                }
            }
            let after = self.dice.spread(1_000, 4 * SECOND);
            return self.turn_after(host, pid, after);
        };
        let roll = self.dice.between(0, 99);
        if held.is_empty() && self.releases_orphans() {
            self.release_orphans(host, pid, conn);
        } else if held.is_empty() || (roll < 15 && !self.calm && held.len() < 3) {
            self.acquire(host, pid, conn, &held);
        } else if roll < 30 && !self.calm {
            self.exit(host, pid);
        } else if roll < 37 && !self.calm {
            self.hang_up(host, pid);
        } else if self.looks_at_holds() {
            self.look_at_holds(host, pid, conn, &held);
        } else if self.converts() {
            self.convert(host, pid, conn, &held);
        } else {
            self.release(host, pid, conn, &held);
        }
    }

    fn introduces_itself(&self, host: usize, pid: i32) -> bool {
        self.hosts[host].processes.get(&pid).is_some_and(|p| p.manner != Manner::default())
    }

    /// How it wants to be stopped.
    fn introduce(&mut self, host: usize, pid: i32, conn: ConnId) {
        let Some(process) = self.hosts[host].processes.get(&pid) else { return };
        let command = if process.manner.killpath {
            let program = KillpathProgram { path: b"/bin/stop".to_vec(), arguments: Vec::new() };
            Command::Killpath { program, pid: true }
        } else {
            Command::Restrict { flags: process.manner.restrictions }
        };
        self.ask(host, conn, Asked::Introduced { pid }, command);
        self.wait_for_reply(host, pid);
    }

    /// The resources it is going to ask for.
    fn choose(&mut self, host: usize, held: &[u8]) -> Vec<u8> {
        let mut free: Vec<u8> = self.settings.all_resources().filter(|r| !held.contains(r)).collect();
        let disks = self.settings.disks;
        if self.calm {
            // What it has not had yet comes first: it may have been tried before there was a lockspace, or for an orphan that is not there.
            let h = &self.hosts[host];
            let got = |r: u8, shared| h.granted_in_calm.get(&(r, shared)).is_some_and(|n| *n > 0);
            let had = |r: u8| got(r, false) && (self.settings.shared_per_mille == 0 || got(r, true));
            free.sort_by_key(|r| (had(*r), h.tried_in_calm.get(r).copied().unwrap_or(0)));
            free.truncate(1);
            return free;
        }
        let mut chosen = Vec::new();
        let wanted =
            if disks > 1 && self.dice.per_mille(400) { 2 } else { 1 + self.dice.between(0, 19) / 19 };
        while (chosen.len() as u64) < wanted && !free.is_empty() {
            let at = usize::try_from(self.dice.between(0, free.len() as u64 - 1)).unwrap_or(0);
            chosen.push(free.swap_remove(at));
        }
        chosen
    }

    fn acquire(&mut self, host: usize, pid: i32, conn: ConnId, held: &[u8]) {
        let resources = self.choose(host, held);
        if resources.is_empty() {
            return self.turn_after(host, pid, SECOND);
        }
        let mut resources: Vec<(u8, bool)> =
            resources.iter().map(|r| (*r, self.wants_shared(host, *r))).collect();
        for resource in &resources {
            *self.hosts[host].tried_in_calm.or_default(resource.0) += u64::from(self.calm);
        }
        let id = self.hosts[host].id;
        // A process may share the same lease several times.
        let twice = held.iter().find(|r| self.checks.holds(**r, id, pid) == Some(true));
        if let Some(resource) = twice.filter(|_| self.dice.per_mille(200)) {
            resources.push((*resource, true));
        }
        let orphan = self.orphan_use();
        let (mut requests, mut demanded) = (Vec::new(), Vec::new());
        for (r, shared) in &resources {
            // An orphan is what it is.
            let lver = if orphan == OrphanUse::Refuse { self.demands(*r) } else { None };
            demanded.extend(lver.map(|lver| (*r, lver)));
            let spec = ResourceSpec { shared: *shared, lver, ..self.spec_of(host, *r) };
            let persistent = !self.calm && self.dice.per_mille(self.settings.persistent_per_mille);
            requests.push(ResourceRequest { spec, persistent, num_hosts: self.wants_num_hosts() });
        }
        if self.joins_unseen(host, pid, &resources) {
            return;
        }
        let owner_nowait = self.dice.per_mille(600);
        let flags = AcquireFlags { owner_nowait, orphan, lvb: self.wants_value() };
        let (other, target) = self.requester(host, pid);
        let command = Command::Acquire { target, owner_name: layout::name("vm"), resources: requests, flags };
        self.ask(host, other.unwrap_or(conn), Asked::Acquire { pid, resources, demanded }, command);
        self.wait_for_reply(host, pid);
    }

    /// It waits; now and then not to the end.
    pub(crate) fn wait_for_reply(&mut self, host: usize, pid: i32) {
        if let Some(process) = self.hosts[host].processes.get_mut(&pid) {
            process.busy = true;
            process.serial += 1;
        }
        if self.strikes(Fault::Impatient) {
            let after = self.dice.spread(100, 20 * SECOND);
            self.turn_after(host, pid, after);
        }
    }

    pub(crate) fn release(&mut self, host: usize, pid: i32, conn: ConnId, held: &[u8]) {
        let all = self.calm || self.dice.per_mille(600);
        let given = if all { held.to_vec() } else { held[..1].to_vec() };
        let (what, to) = self.what_to_release(host, pid, &given, all);
        let asked = Asked::Release { pid, resources: given, all, to };
        self.ask(host, conn, asked, Command::Release { target: Target::Own, what });
        self.wait_for_reply(host, pid);
    }

    /// The manager has taken a command: unless it refused, what is to be released is nobody's from here on.
    pub(crate) fn accepted(&mut self, host: usize, conn: ConnId, actions: &[Action]) {
        let asked = self.daemon(host).and_then(|d| d.clients.get(&conn.0)).and_then(|c| c.asked.clone());
        let (pid, resources, all, to) = match asked {
            Some(Asked::Release { pid, resources, all, to }) => (pid, resources, all, to),
            Some(Asked::Convert { pid, resource, shared }) => {
                return self.convert_accepted(host, (pid, resource, shared), actions);
            }
            Some(Asked::Orphans { .. }) => return self.orphans_accepted(host),
            _ => return,
        };
        let refused = actions.iter().any(|a| match a {
            Action::Reply { conn: to, reply: Reply::Result(code) } => {
                *to == conn && *code == ReturnCode::EBUSY.0
            }
            _ => false,
        });
        if !refused && !self.sabotaged(Sabotage::KeepsUsing) {
            let id = self.hosts[host].id;
            for resource in resources {
                self.checks.releasing(resource, (id, pid), to);
                self.checks.given_up(resource, id, pid, all);
            }
        }
    }

    /// The manager answers.
    pub(crate) fn replied(&mut self, host: usize, conn: ConnId, reply: &Reply) {
        let Some(daemon) = self.daemon(host) else { return };
        let Some(client) = daemon.clients.get_mut(&conn.0) else { return };
        let asked = client.asked.take();
        let own = client.pid;
        let mut code = code_of(reply);
        if self.sabotaged(Sabotage::FalseSuccess) {
            code = 0;
        }
        if own.is_none() {
            self.tell_front(host, conn, Told::ConnClosed { conn });
        }
        match asked {
            Some(Asked::Acquire { pid, resources, demanded }) => {
                if code == 0 {
                    for (resource, shared) in &resources {
                        self.granted(host, pid, *resource, *shared);
                    }
                    self.check_demands(host, pid, &demanded);
                }
                let after = if code == 0 { self.hold_time() } else { self.pause_before_acquire() };
                self.answered(host, pid, after);
            }
            Some(Asked::Convert { pid, resource, shared }) => {
                self.convert_replied(host, pid, resource, shared, code);
            }
            Some(Asked::Release { pid, resources, .. }) => {
                let id = self.hosts[host].id;
                for resource in resources.into_iter().filter(|_| code == 0) {
                    self.checks.released(resource, (id, pid), &self.disk);
                }
                let after = self.pause_before_acquire();
                self.answered(host, pid, after);
            }
            Some(asked @ (Asked::Inquire { .. } | Asked::GetValue { .. } | Asked::SetValue { .. })) => {
                self.value_replied(host, &asked, reply);
            }
            Some(Asked::Orphans { pid }) => self.orphans_replied(host, pid, code),
            Some(Asked::Introduced { pid }) => {
                let after = self.pause_before_acquire();
                self.answered(host, pid, after);
            }
            Some(Asked::Used { disk, on }) if code == 0 => {
                let id = self.hosts[host].id;
                self.checks.used_flag(id, disk, on);
            }
            Some(Asked::UsedByOrphans { disk, on }) if code == 0 => self.orphans_flagged(host, disk, on),
            Some(Asked::Set { setting }) => self.event_replied(host, setting, code),
            Some(Asked::Listen) => {
                // Refused: success has another answer.
                if let Some(daemon) = self.daemon(host) {
                    daemon.listeners.remove(&conn.0);
                }
            }
            Some(Asked::Used { .. } | Asked::UsedByOrphans { .. } | Asked::Other) | None => {}
        }
    }

    pub(crate) fn hold_time(&mut self) -> Micros {
        let longest = if self.calm { 500_000 } else { self.settings.hold_ms * 1000 };
        let in_earnest = self.settings.is_earnest() && !self.calm;
        self.dice.spread(if in_earnest { longest / 100 } else { 10 }, longest)
    }

    pub(crate) fn answered(&mut self, host: usize, pid: i32, after: Micros) {
        let Some(process) = self.hosts[host].processes.get_mut(&pid) else { return };
        process.busy = false;
        if process.leaving && process.alive {
            return self.exit(host, pid);
        }
        self.turn_after(host, pid, after);
    }

    pub(crate) fn granted(&mut self, host: usize, pid: i32, resource: u8, shared: bool) {
        self.checks.marks.acquired_beside_wrong += u64::from(self.hosts[host].wrong_leg.is_some());
        let spec = layout::resource_spec(resource, self.settings.legs, self.settings.geometry);
        let Some(daemon) = self.hosts[host].daemon.as_ref() else { return };
        let found = daemon.manager.resources().filter(|(_, r)| r.spec.disks == spec.disks).find_map(
            |(_, r)| match &r.work {
                Work::Held { held, tokens } => Some((*held, tokens.clone())),
                _ => None,
            },
        );
        let id = self.hosts[host].id;
        let lver = found.as_ref().map(|(held, _)| held.lver());
        let adopted = self.checks.adopted(resource, id, lver);
        let Some(process) = self.hosts[host].processes.get(&pid) else {
            return; // it ended before the reply
        };
        self.checks.marks.orphans_adopted += u64::from(adopted);
        let own = process.conn;
        if found.as_ref().is_some_and(|(_, tokens)| tokens.iter().all(|t| Some(t.conn) != own)) {
            // Asked for by somebody else, in the name of a connection that the process had closed meanwhile: the lease goes with it.
            self.say(|_| format!("{id:?} grants resource {resource} to a connection that {pid} has closed"));
            self.checks.marks.granted_to_nobody += 1;
            return;
        }
        let found = found.map(|(held, _)| held);
        let Some(held) = found.filter(|held| held.is_shared() == shared) else {
            let what = format!("S5: {id:?} says that {pid} has resource {resource}, which it does not hold");
            return self.checks.violated(what);
        };
        self.say(|_| {
            format!("{id:?} GRANTED resource {resource} version {} to {pid}, shared {shared}", held.lver())
        });
        let generation = held.leader.owner_generation.get();
        if shared {
            return self.share(host, pid, resource, generation);
        }
        self.grant(host, pid, resource, generation, &held);
    }

    /// The checks of a grant.
    pub(crate) fn grant(&mut self, host: usize, pid: i32, resource: u8, generation: u64, held: &Held) {
        let (writer, life) = (self.writer(host), self.life_of(host));
        self.checks.grant(resource, writer, (pid, life), generation, held, &self.disk);
        self.has_got(host, resource, false);
    }

    /// The checks of a shared grant.
    pub(crate) fn share(&mut self, host: usize, pid: i32, resource: u8, generation: u64) {
        let (writer, life) = (self.writer(host), self.life_of(host));
        self.checks.share(resource, writer, (pid, life), generation, &self.disk);
        self.has_got(host, resource, true);
    }

    fn has_got(&mut self, host: usize, resource: u8, shared: bool) {
        let calm = self.calm;
        *self.hosts[host].granted_in_calm.or_default((resource, shared)) += u64::from(calm);
        let writer = self.writer(host);
        if !self.hosts[host].watchdog.covers(layout::disk_of(resource)) {
            self.checks
                .violated(format!("S7: {writer:?} was granted {resource} with no watchdog armed for it"));
        }
    }
}

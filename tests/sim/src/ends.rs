//! How processes end: by themselves, by signals, by their killpath program, with their daemon.

use crate::clients::{Client, Process};
use crate::clock::SECOND;
use crate::daemon::{Message, Source, Thread};
use crate::fault::Fault;
use crate::sabotage::Sabotage;
use crate::world::{Event, World};
use sanlock_manager::{ConnId, Event as Told, ResourceId, Signal};

impl World {
    /// The process closes its connection, gives everything up, and lives on.
    pub(crate) fn hang_up(&mut self, host: usize, pid: i32) {
        let id = self.hosts[host].id;
        let Some(process) = self.hosts[host].processes.get_mut(&pid) else { return };
        let conn = process.conn.take();
        self.say(|_| format!("{id:?} {pid} hangs up"));
        self.checks.dropped_by(id, pid);
        if let Some(conn) = conn {
            self.tell_front(host, conn, Told::ConnClosed { conn });
        }
        let after = self.pause_before_acquire();
        self.turn_after(host, pid, after);
    }

    /// A process ends.
    pub(crate) fn exit(&mut self, host: usize, pid: i32) {
        let calm = self.calm;
        let (epoch, id) = (self.hosts[host].epoch, self.hosts[host].id);
        let Some(process) = self.hosts[host].processes.get_mut(&pid) else { return };
        if !std::mem::take(&mut process.alive) {
            return;
        }
        let survived = process.leaves_descendant && !calm;
        self.say(|_| format!("{id:?} {pid} ends, descendant {survived}"));
        let of_it = |(conn, client): (&u64, &Client)| {
            (client.pid == Some(pid) && client.watched).then_some(ConnId(*conn))
        };
        let conns: Vec<ConnId> =
            self.daemon(host).map(|d| d.clients.iter().filter_map(of_it).collect()).unwrap_or_default();
        for conn in conns {
            self.send(host, Source::Pid(pid), Thread::Front, Message::told(Told::PidGone { conn }));
        }
        if survived {
            let after = self.dice.spread(SECOND, 300 * SECOND);
            self.at(self.now + after, Event::DescendantEnds { host, epoch, pid });
        } else {
            self.last_copy_closed(host, pid);
        }
        let after = self.dice.spread(SECOND / 10, 20 * SECOND);
        self.at(self.now + after, Event::Spawn { host, epoch });
    }

    /// The front has read who a client is, and watches that process from now on. If it has ended by then that is seen at once.
    pub(crate) fn watched(&mut self, host: usize, conn: ConnId, pid: i32) {
        let alive = self.hosts[host].processes.get(&pid).is_some_and(|process| process.alive);
        let Some(daemon) = self.daemon(host) else { return };
        if let Some(client) = daemon.clients.get_mut(&conn.0) {
            client.watched = true;
        }
        if !alive {
            daemon.events.push_front(Some(Box::new(Told::PidGone { conn })));
        }
    }

    /// Nobody is left who might use what the process held.
    pub(crate) fn last_copy_closed(&mut self, host: usize, pid: i32) {
        let id = self.hosts[host].id;
        let Some(process) = self.hosts[host].processes.remove(&pid) else { return };
        self.checks.dropped_by(id, pid);
        self.checks.process_gone(id, pid);
        if let Some(conn) = process.conn {
            self.tell_front(host, conn, Told::ConnClosed { conn });
        }
    }

    /// The daemon is gone, and with it all connections.
    pub(crate) fn hung_up_by_daemon(&mut self, host: usize) {
        let pids: Vec<i32> = self.hosts[host].processes.keys().copied().collect();
        let (epoch, id) = (self.hosts[host].epoch, self.hosts[host].id);
        for pid in pids {
            let holds = !self.checks.held_by(id, pid).is_empty();
            let Some(process) = self.hosts[host].processes.get_mut(&pid) else { continue };
            process.conn = None;
            process.busy = false;
            process.serial += 1;
            if !holds {
                let after = self.pause_before_acquire();
                self.turn_after(host, pid, after);
            } else if self.dice.per_mille(800) || self.calm {
                let after = self.dice.spread(SECOND, 300 * SECOND);
                self.at(self.now + after, Event::Exit { host, epoch, pid });
            }
        }
    }

    /// A signal, through the process' pidfd.
    pub(crate) fn kill(&mut self, host: usize, conn: ConnId, signal: Signal) {
        let (epoch, id) = (self.hosts[host].epoch, self.hosts[host].id);
        let Some(mut pid) = self.daemon(host).and_then(|d| d.clients.get(&conn.0)).and_then(|c| c.pid) else {
            return;
        };
        if self.sabotaged(Sabotage::KillsBystanders) {
            let other = self.hosts[host].processes.keys().find(|p| **p != pid).copied();
            pid = other.unwrap_or(pid);
        }
        let calm = self.calm;
        let Some(process) = self.hosts[host].processes.get_mut(&pid).filter(|p| p.alive) else { return };
        process.forced |= signal == Signal::Kill;
        let asked = process.was_asked();
        let (deaf, conn, busy) = (process.unkillable && !calm, process.conn, process.busy);
        let ignores = deaf || (signal == Signal::Term && process.ignores_term && !calm);
        if !asked {
            self.checks.killed(id, pid);
        }
        self.checks.marks.signals += 1;
        if ignores || process.leaving {
            return;
        }
        if signal == Signal::Term && !busy && self.dice.per_mille(300) {
            // It gives everything up first.
            let held = self.checks.held_by(id, pid);
            if let (Some(conn), false) = (conn, held.is_empty()) {
                self.release(host, pid, conn, &held);
                if let Some(process) = self.hosts[host].processes.get_mut(&pid) {
                    process.leaving = true;
                }
                return;
            }
        }
        let long = if self.dice.per_mille(900) { 2 } else { 100 };
        let after = self.dice.spread(1_000, long * SECOND);
        self.at(self.now + after, Event::Exit { host, epoch, pid });
    }

    /// Whether a program may have been run to stop it. If that did not, and renewals go on again, it is stopped by force after a
    /// hundred attempts only, which is longer than the calm. Somebody has to end it.
    pub(crate) fn has_killpath(&self, host: usize, pid: i32) -> bool {
        self.hosts[host].processes.get(&pid).is_some_and(|p| p.manner.killpath)
    }

    /// Whether it waits for nothing.
    pub(crate) fn is_idle(&self, host: usize, pid: i32) -> bool {
        self.hosts[host].processes.get(&pid).is_some_and(|p| p.alive && !p.busy)
    }

    /// Its killpath program is to be run: it stops the process, or does not get that far.
    pub(crate) fn run_killpath(&mut self, host: usize, conn: ConnId, request: Option<ResourceId>) {
        let epoch = self.hosts[host].epoch;
        let pid = self.daemon(host).and_then(|d| d.clients.get(&conn.0)).and_then(|c| c.pid);
        let process = pid.and_then(|pid| self.hosts[host].processes.get_mut(&pid));
        let asked = process.is_some_and(Process::was_asked);
        if self.strikes(Fault::KillpathLost) {
            let told = Told::KillpathLost { conn, request };
            return self.send(host, Source::Thread(Thread::Front), Thread::Front, Message::told(told));
        }
        let Some(pid) = pid else { return };
        let id = self.hosts[host].id;
        if self.hosts[host].processes.get(&pid).is_some_and(|p| p.alive) {
            if !asked {
                self.checks.killed(id, pid);
            }
            self.checks.marks.killpaths += 1;
            if self.calm || self.dice.per_mille(500) {
                let after = self.dice.spread(1_000, 20 * SECOND);
                self.at(self.now + after, Event::Exit { host, epoch, pid });
            }
        }
    }
}

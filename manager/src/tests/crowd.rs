//! Many lockspaces and many clients: what an event costs while everything ends.

use super::lab::*;
use crate::killing::LOOKED_AT;
use crate::*;
use std::collections::VecDeque;

/// A host on which each client holds leases, each in another one of the lockspaces as far as there are.
struct Crowd {
    lab: Lab,
    spaces: Vec<LockspaceId>,
    clients: u64,
    events: u64,
}

impl Crowd {
    fn new(spaces: u64, clients: u64, leases: u64) -> Self {
        let lab = Lab::with_watchdog(true);
        let mut crowd = Self { lab, spaces: Vec::new(), clients, events: 0 };
        let asking = ConnId(u64::MAX);
        crowd.handle(Event::ConnOpened { conn: asking, ci: 0 });
        for space in 0..spaces {
            let spec = ls_spec(&format!("l{space}"));
            let command = Command::AddLockspace { spec, io_timeout: 0, asynchronous: true };
            crowd.handle(Event::Command { conn: asking, command });
        }
        crowd.spaces = crowd.lab.m.lockspaces.keys().copied().collect();
        for client in 0..clients {
            let (conn, ci) = (ConnId(client), u32::try_from(client).unwrap());
            crowd.handle(Event::ConnOpened { conn, ci });
            let pid = 100 + i32::try_from(client).unwrap();
            crowd.handle(Event::Command { conn, command: Command::Register { pid } });
            let wanted =
                |lease| request(&format!("l{}:{client}.{lease}", (client * leases + lease) % spaces));
            let command = Command::Acquire {
                target: Target::Own,
                owner_name: name("owner"),
                resources: (0..leases).map(wanted).collect(),
                flags: AcquireFlags::default(),
            };
            crowd.handle(Event::Command { conn, command });
        }
        let held: usize = crowd.lab.m.conns.values().map(|conn| conn.held().count()).sum();
        assert_eq!((crowd.spaces.len() as u64, held as u64), (spaces, clients * leases));
        crowd
    }

    /// Takes an event, and what the disks and wdmd answer to what it calls for.
    fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let (mut out, now) = (Vec::new(), self.lab.now);
            self.lab.m.handle(now, event, &mut out);
            self.events += 1;
            events.extend(out.into_iter().filter_map(|action| match action {
                Action::WatchdogCheck { ls, .. } => Some(Event::WatchdogChecked { ls, result: Ok(2) }),
                Action::WatchdogArm { ls, .. } => Some(Event::WatchdogArmed { ls, result: Ok(()) }),
                Action::Join { ls, .. } => Some(Event::JoinDone { ls, result: Ok(joined(GENERATION, now)) }),
                Action::SaveRejoin { ls, serial, .. } => Some(Event::RejoinSaved { ls, serial }),
                Action::Leave { ls, .. } => Some(Event::Left { ls, writes: LeaseWrites::Ended }),
                Action::StartAcquire { task, .. } => {
                    let outcome =
                        sanlock_lease::paxos::acquire::AcquireOutcome::Acquired(held(GENERATION, 7));
                    Some(Event::AcquireDone { task, outcome, value: None, outstanding: 0 })
                }
                _ => None,
            }));
        }
    }

    /// All storage fails, then one client ends after the other.
    fn end(&mut self) {
        for ls in self.spaces.clone() {
            self.handle(Event::Corrupt { ls, code: -260, text: String::new() });
        }
        for client in 0..self.clients {
            self.handle(Event::PidGone { conn: ConnId(client) });
            self.handle(Event::ConnClosed { conn: ConnId(client) });
        }
        assert_eq!(self.lab.m.lockspaces().count(), 0);
    }
}

/// The front must not fall behind just when all storage has failed: it has to notice that everybody is gone.
#[test]
fn an_event_costs_no_more_while_many_lockspaces_end_than_while_one_does() {
    let looked_at = |spaces| {
        let mut crowd = Crowd::new(spaces, 64, 4);
        LOOKED_AT.set(0);
        crowd.events = 0;
        crowd.end();
        LOOKED_AT.get() / crowd.events
    };
    let (one, many) = (looked_at(1), looked_at(64));
    assert!(many < 3 * one, "{many} entries looked at for an event with 64 lockspaces, {one} with one");
}

//! Many lockspaces and many clients: what an event costs while everything ends.

use super::lab::*;
use crate::killing::LOOKED_AT;
use crate::*;
use sanlock_lease::limits::RESOURCES_PER_REQUEST_MAX;
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
            crowd.register(client);
            let wanted =
                |lease| request(&format!("l{}:{client}.{lease}", (client * leases + lease) % spaces));
            crowd.acquire(client, (0..leases).map(wanted).collect());
        }
        let held: usize = crowd.lab.m.conns.values().map(|conn| conn.held().count()).sum();
        assert_eq!((crowd.spaces.len() as u64, held as u64), (spaces, clients * leases));
        crowd
    }

    /// A host on which each client has so many tokens of one shared lease.
    fn sharing(clients: u64, tokens: usize) -> Self {
        let mut crowd = Self { clients, ..Self::new(1, 0, 0) };
        let mut wanted = request("l0:s");
        wanted.spec.shared = true;
        for client in 0..clients {
            crowd.register(client);
            for _ in 0..tokens / RESOURCES_PER_REQUEST_MAX {
                crowd.acquire(client, vec![wanted.clone(); RESOURCES_PER_REQUEST_MAX]);
            }
            assert_eq!(crowd.tokens(client), tokens);
        }
        crowd
    }

    fn register(&mut self, client: u64) {
        let (conn, ci) = (ConnId(client), u32::try_from(client).unwrap());
        self.handle(Event::ConnOpened { conn, ci });
        let pid = 100 + i32::try_from(client).unwrap();
        self.handle(Event::Command { conn, command: Command::Register { pid } });
    }

    fn acquire(&mut self, client: u64, resources: Vec<ResourceRequest>) {
        let (owner_name, flags) = (name("owner"), AcquireFlags::default());
        let command = Command::Acquire { target: Target::Own, owner_name, resources, flags };
        self.handle(Event::Command { conn: ConnId(client), command });
    }

    fn release(&mut self, client: u64, what: ReleaseWhat) {
        let command = Command::Release { target: Target::Own, what };
        self.handle(Event::Command { conn: ConnId(client), command });
    }

    fn tokens(&self, client: u64) -> usize {
        self.lab.m.conns.get(&ConnId(client)).map_or(0, |conn| conn.held().count())
    }

    /// How many entries are looked at while this happens.
    fn looked_at(&mut self, happens: impl FnOnce(&mut Self)) -> usize {
        LOOKED_AT.set(0);
        happens(self);
        usize::try_from(LOOKED_AT.get()).unwrap()
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

/// A client may have thousands of tokens, and one message of it thousands of names: other clients, and the renewals that are to be noticed, do not wait
/// for the product.
#[test]
fn a_release_looks_at_what_is_held_and_named_and_not_at_their_product() {
    let (held, named) = (512, 256);
    let all = |n: usize| (name("l0"), name(&if n % 2 == 0 { "s".to_owned() } else { format!("x{n}") }));
    for (what, left) in [
        (ReleaseWhat::Named((0..named).map(all).collect()), held - named / 2),
        (ReleaseWhat::Named((1..named).step_by(2).map(all).collect()), held),
        (ReleaseWhat::All, 0),
    ] {
        let mut crowd = Crowd::sharing(1, held);
        let looked_at = crowd.looked_at(|crowd| crowd.release(0, what));
        assert_eq!(crowd.tokens(0), left);
        assert!(looked_at < 8 * (held + named), "{looked_at} entries looked at");
    }
}

/// A process may have hundreds of connections, and thousands of tokens on each, all of one lease.
#[test]
fn what_a_connection_has_of_a_shared_lease_goes_at_once() {
    let (clients, each) = (8, 128);
    let bound = 8 * 8 * each;
    let mut crowd = Crowd::sharing(clients, each);
    let looked_at = crowd.looked_at(|crowd| crowd.release(0, ReleaseWhat::All));
    assert!(crowd.tokens(0) == 0 && looked_at < bound, "{looked_at} entries looked at by a release");
    for client in 1..clients {
        let looked_at = crowd.looked_at(|crowd| crowd.handle(Event::ConnClosed { conn: ConnId(client) }));
        assert!(crowd.tokens(client) == 0 && looked_at < bound, "{looked_at} entries looked at by an end");
    }
}

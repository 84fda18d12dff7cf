//! What a client compares: the version, name and value of what it was granted, who keeps it, and the owners on disk.

use std::time::Instant;

use super::client::{Client, Wanted};
use super::proof::{Entry, Mode, NOT_SURE, now_ms};
use super::site::{Class, OTHER_NAME, SPOTS, Spot};
use super::value;
use crate::program::Program;
use crate::raw::{HEADER_LEN, Header, cmd};

impl Client {
    /// Notes in the ledger that this client holds the lease alone, under a version that nobody had.
    pub(super) fn enter(&self, want: &Wanted, lver: u64, adopting: bool) {
        let (host, pid) = (self.me.host_id, u64::from(std::process::id()));
        let before = self.proof.ledger(want.spot, |entry| {
            let before = *entry;
            *entry = Entry { lver, host, pid, at: now_ms(), name: number_of(want.name), ..before };
            (entry.keeper, entry.kept_lver) = if want.persistent { (host, lver) } else { (0, 0) };
            before
        });
        if let Some(demand) = want.demand {
            // Ours commits the value of an attempt of this host that was given up, and has the version after it.
            let passed = if self.me.program == Program::Ours { 2 } else { 1 };
            assert!(
                before.lver <= demand && (demand + 1..=demand + passed).contains(&lver),
                "VERSION: {} asked for the one after {demand} and has {lver}, after {before:?}",
                self.me.label
            );
        }
        // A holder may have told the daemon to change the name, or a slow commit have changed it back since (decision 10). How often is
        // judged at the end.
        let name = number_of(want.name);
        if before.name > NOT_SURE && before.name != name + NOT_SURE {
            println!("rename-lost 0 0");
        } else if before.name != 0 && before.name < NOT_SURE && before.name != name {
            println!("name-undone 0 0");
        }
        // An orphan keeps its version. One whose holder had no time to write the ledger has one that nobody has entered.
        let adopted = adopting && before.host == host && before.lver == lver;
        assert!(
            adopted || lver > before.lver,
            "DOUBLE OWNER: {} has {} under version {lver}, after {before:?}",
            self.me.label,
            SPOTS[want.spot].name
        );
        assert!(
            adopted || before.keeper != host,
            "ORPHAN LOST: {} has {} under version {lver}, but {before:?}",
            self.me.label,
            SPOTS[want.spot].name
        );
        assert!(
            before.keeper == 0 || before.keeper == host,
            "ORPHAN LOST: {} has {} under version {lver}, but {before:?}",
            self.me.label,
            SPOTS[want.spot].name
        );
    }

    /// No other host keeps what this one was granted.
    pub(super) fn no_orphan_of_others(&self, spot: usize) {
        let entry = self.proof.ledger(spot, |entry| *entry);
        assert!(
            entry.keeper == 0 || entry.keeper == self.me.host_id,
            "ORPHAN LOST: {} shares {}, but {entry:?}",
            self.me.label,
            SPOTS[spot].name
        );
    }

    /// Reads the value of a lease and compares it with what the ledger says.
    ///
    /// # Panics
    /// When it is not what was set last, or of two values.
    pub fn check_value(&mut self, spot: usize) {
        let Some(held) = self.hold_on(spot).filter(|held| held.valued) else { return };
        if SPOTS[spot].class != Class::Valued {
            return;
        }
        let payload = self.site.resource(&SPOTS[spot], held.name).encode_bare();
        let begun = Instant::now();
        let reply = self.connection.request(cmd::GET_LVB, 0, 0, 0, &payload);
        let length = (reply.length as usize).saturating_sub(HEADER_LEN);
        let who = format!("{} with {:?}", self.me.label, held);
        assert_eq!(reply.result(), 0, "VALUE LOST: {who} cannot read it");
        assert_eq!(length, SPOTS[spot].sector_size(), "VALUE LOST: {who} reads another length");
        self.judge("get-value", reply.result(), begun);
        let bytes = self.connection.receive_payload(length);
        let number =
            value::number_in(&bytes).unwrap_or_else(|place| panic!("VALUE TORN at word {place}: {who}"));
        let before = self.proof.ledger(spot, |entry| {
            let before = *entry;
            if held.mode == Mode::Exclusive {
                (entry.value, entry.begun) = (number, 0);
            }
            before
        });
        assert!(
            number == before.value || before.begun != 0 && number == before.begun,
            "VALUE LOST: {who} reads {number}, but {before:?}"
        );
        if number != 0 {
            println!("value-from-host-{} 0 0", before.setter);
        }
    }

    /// Sets the next value of a lease held exclusively. `wait`: for the reply; else hangs up at once.
    ///
    /// # Panics
    /// On an unexpected result.
    pub fn set_value(&mut self, spot: usize, wait: bool) {
        let Some(held) = self.hold_on(spot) else { return };
        let number = self.proof.ledger(spot, |entry| {
            entry.begun = entry.value.max(entry.begun) + 1;
            entry.setter = self.me.host_id;
            entry.begun
        });
        let mut payload = self.site.resource(&SPOTS[spot], held.name).encode_bare();
        payload.extend(value::bytes_of(number, SPOTS[spot].sector_size()));
        if !wait {
            return self.hang_up(Some((Header::request(cmd::SET_LVB, payload.len()), payload)));
        }
        let begun = Instant::now();
        let code = self.connection.request(cmd::SET_LVB, 0, 0, 0, &payload).result();
        self.judge("set-value", code, begun);
        self.proof.ledger(spot, |entry| (entry.value, entry.begun) = (number, 0));
    }

    /// Compares the owners on disk with what this client holds.
    ///
    /// A leader that is older than what this client holds alone says nothing about its owner: a host that finished an earlier ballot in the
    /// name of its winner was slow to write it (decision 10), and the next ballot brings the newer one back. Who had got the lease
    /// beside us would have a version that is not older.
    ///
    /// # Panics
    /// When the disk says that somebody else holds the lease, or that this host does not.
    pub fn check_owners(&mut self, spot: usize) {
        let described: &Spot = &SPOTS[spot];
        let held = self.hold_on(spot);
        let name = held.map_or(described.name, |held| held.name);
        let begun = Instant::now();
        let resource = self.site.resource(described, name);
        let (result, found, owners) = self.connection.read_resource_owners(&resource);
        let words = if described.class == Class::Renamed { "read-renamed" } else { "read-owners" };
        self.judge(words, result, begun);
        let hosts: Vec<u64> = owners.iter().map(|owner| owner.host_id).collect();
        let entry = self.proof.ledger(spot, |entry| *entry);
        let mine = match held.map(|held| held.mode) {
            None => true,
            Some(Mode::Exclusive) if found.lver < entry.lver => {
                println!("leader-behind 0 0");
                true
            }
            Some(Mode::Exclusive) => hosts == [self.me.host_id],
            Some(Mode::Shared) => hosts.contains(&self.me.host_id),
        };
        assert!(
            mine && hosts.iter().all(|host| (1..=super::HOSTS).contains(host)),
            "OWNERS: {} holds {held:?}, but {found:?} {owners:?}, after {entry:?}",
            self.me.label
        );
    }
}

/// A name in the ledger.
pub(super) fn number_of(name: &str) -> u64 {
    if name == OTHER_NAME { 2 } else { 1 }
}

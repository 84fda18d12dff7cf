//! What the daemon counts, for STATUS with [`StatusFlags::COUNTERS`](sanlock_wire::counters::StatusFlags::COUNTERS).
//!
//! Counting happens in the front alone, when a reply goes out: some additions to a table of fixed size. Nothing is counted where leases
//! are renewed; how long renewals take is in their history (RENEWAL).

use sanlock_manager::Watch;
use sanlock_wire::counters::{COUNTERS_RECORD, DAMAGED_HOSTS, DEPTHS, LOCKSPACE_COUNTERS_RECORD, record};
use sanlock_wire::{Name, StateRecord, StateText};

use super::{Front, convert};

/// The records, after the listing.
pub(super) fn records(front: &Front) -> Vec<StateRecord> {
    let mut text = StateText::new().item("watchdog_fire", front.global.config.fire.secs());
    for (name, depth) in DEPTHS.iter().zip(depths(front)) {
        text = text.item(&format!("depth_{name}"), depth);
    }
    let mut records = vec![record(COUNTERS_RECORD, Name::EMPTY, &front.counters.text(text))];
    for (id, lockspace) in front.manager.lockspaces() {
        let mut text = StateText::new().item("watch", word(lockspace.watch));
        if let Some(hosts) = front.shared(id).and_then(|shared| shared.hosts()) {
            text = text.item(DAMAGED_HOSTS, hosts.bad());
        }
        let name = convert::wire_name(&lockspace.spec.name);
        records.push(record(LOCKSPACE_COUNTERS_RECORD, name, &text));
    }
    records
}

/// In the order of [`DEPTHS`]. The locks taken for it are held for memory operations only.
fn depths(front: &Front) -> [usize; DEPTHS.len()] {
    let connections = || front.slots.iter().filter_map(|slot| slot.conn.as_ref());
    [
        connections().count(),
        connections().filter(|conn| conn.suspended).count(),
        front.runnable.len(),
        front.inbox.len(),
        front.slots.kept(),
        front.tools.waiting(),
        front.indexes.len(),
        front.records.saves(),
        front.helper.waiting(),
        front.global.log.waiting(),
    ]
}

const fn word(watch: Watch) -> &'static str {
    match watch {
        Watch::Off => "off",
        Watch::Checking => "checking",
        Watch::Idle => "idle",
        Watch::Arming => "arming",
        Watch::Armed => "armed",
        Watch::Lost => "lost",
    }
}

//! A host of one program dies while it owns a lease; a host of the other takes it over. All
//! directions and kinds of storage side by side, because each takes more than a minute.

use sanlock_conformance::{Program, Storage, StorageKind, bounded, dead_owner};

#[test]
fn either_program_takes_over_from_the_other_once_it_is_dead() {
    if !Program::both_available() {
        return;
    }
    let directions = [(Program::Ours, Program::Reference), (Program::Reference, Program::Ours)];
    let mut parts: Vec<(String, Box<dyn FnOnce() + Send>)> = Vec::new();
    for (survivor, victim) in directions {
        let name = format!("{} survives {}", survivor.word(), victim.word());
        for kind in StorageKind::ALL {
            let take_over = move || {
                let Some(storage) = Storage::new(kind) else { return };
                dead_owner::take_over(&dead_owner::abandon(storage, survivor, victim, 1));
            };
            parts.push((format!("{name} on {kind:?}"), Box::new(take_over)));
        }
        let reborn = move || dead_owner::reborn(dead_owner::abandon(Storage::file(), survivor, victim, 1));
        parts.push((format!("{name}, which comes back"), Box::new(reborn)));
    }
    bounded::side_by_side(parts);
}

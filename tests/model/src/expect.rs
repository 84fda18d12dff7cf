//! What a test expects of an exploration.

use crate::checks::{Marks, Property};
use crate::explore::{Limits, explore};
use crate::settings::{Settings, Twist};
use crate::world::World;

/// Every schedule within the limits keeps every property, and what is to be reached is reached. Prints how many states were looked
/// at, and returns what happened in them.
///
/// # Panics
/// With the schedule that breaks a property, or the name of what was not reached; or there are more states than the limits allow.
pub fn keeps_everything(what: &str, settings: Settings, limits: Limits) -> Marks {
    let sometimes = settings.sometimes.clone();
    let mut world = World::new(settings);
    let report = explore(&mut world, limits);
    if let Some(violation) = &report.violation {
        let (states, text) = (report.states, world.narrate(&violation.schedule));
        panic!("{what}: {:?} is broken after {states} states:\n{text}", violation.property);
    }
    let extent = if report.complete { "complete, depth" } else { "to depth" };
    println!("{what}: {} states, {} steps, {extent} {}", report.states, report.steps, report.depth);
    println!("    {:?}", world.marks);
    assert!(report.complete || report.depth == limits.depth);
    for name in sometimes {
        assert!(world.marks.get(name) > 0, "{what}: never {name}");
    }
    world.marks
}

/// The property is broken with the twist, and with nothing bent it is kept.
///
/// # Panics
/// It is not so.
pub fn found_only_with(twist: Twist, property: Property, settings: Settings) {
    let settings = Settings { twist, properties: vec![property], ..settings };
    let report = explore(&mut World::new(settings.clone()), Limits::complete());
    let found = report.violation.map(|violation| violation.property);
    assert_eq!(found, Some(property), "{twist:?} after {} states", report.states);
    let straight = Settings { twist: Twist::None, ..settings };
    assert_eq!(explore(&mut World::new(straight), Limits::complete()).violation, None, "without the twist");
}

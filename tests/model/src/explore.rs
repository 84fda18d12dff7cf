//! Breadth first through all states: the first violation found is one of the shortest.

use crate::checks::Property;
use crate::world::{Action, State, World};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What there is of something, each once. A hash that nobody hostile can choose for, and the same one in every run.
pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps from the beginning.
    pub depth: u32,
    /// States; a run that reaches it fails, because its depth would mean nothing.
    pub states: usize,
    /// The calm is tried after every state whose number is a multiple of this. 0: never.
    pub calm_every: u32,
}

impl Limits {
    /// To the very end, trying the calm now and then.
    #[must_use]
    pub fn complete() -> Self {
        Self { depth: u32::MAX, states: 12_000_000, calm_every: 97 }
    }
}

/// A broken property and one of the shortest ways to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was broken.
    pub property: Property,
    /// How to get there from the beginning.
    pub schedule: Vec<Action>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Steps looked at.
    pub steps: u64,
    /// The depth that was finished.
    pub depth: u32,
    /// Whether every state was looked at, whatever its depth.
    pub complete: bool,
    /// The first violation.
    pub violation: Option<Violation>,
}

/// A state's predecessor and the action that led to it.
type Came = Option<(u32, Action)>;

fn way_to(came: &[Came], mut number: u32) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some((before, action)) = came[number as usize] {
        actions.push(action);
        number = before;
    }
    actions.reverse();
    actions
}

/// Looks at all states within the limits.
///
/// # Panics
/// There are more states than the limits allow.
pub fn explore(world: &mut World, limits: Limits) -> Report {
    let begin = world.begin();
    let mut seen: Map<State, ()> = Map::default();
    seen.insert(begin, ());
    let mut came: Vec<Came> = vec![None];
    let mut level = vec![(begin, 0_u32)];
    let mut report = Report { states: 1, steps: 0, depth: 0, complete: false, violation: None };
    let mut actions = Vec::new();
    while report.depth < limits.depth {
        let mut next_level = Vec::new();
        for (state, number) in level {
            world.actions(&state, &mut actions);
            for action in &actions {
                report.steps += 1;
                let next = world.next(&state, *action);
                if let Some(property) = next.broken.first() {
                    let mut schedule = way_to(&came, number);
                    schedule.push(*action);
                    report.violation = Some(Violation { property: *property, schedule });
                    return report;
                }
                let Entry::Vacant(entry) = seen.entry(next.state) else { continue };
                entry.insert(());
                let new = crate::number_of(came.len());
                came.push(Some((number, *action)));
                next_level.push((next.state, new));
                report.states = came.len();
                assert!(report.states <= limits.states, "more than {} states", limits.states);
                if limits.calm_every > 0 && new % limits.calm_every == 0 {
                    if let Err((property, on)) = world.calm(&next.state) {
                        let mut schedule = way_to(&came, new);
                        schedule.extend(on);
                        report.violation = Some(Violation { property, schedule });
                        return report;
                    }
                }
            }
        }
        if next_level.is_empty() {
            report.complete = true;
            return report;
        }
        report.depth += 1;
        level = next_level;
    }
    report
}

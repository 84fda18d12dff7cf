//! Breadth first through the states of any model: what [`crate::explore`] does for leases, without its calm.

use crate::explore::Map;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Something with states.
pub trait Model {
    /// A state; a handful of numbers.
    type State: Copy + Eq + Hash;
    /// Something that may happen.
    type Action: Copy;
    /// Something that must never be broken.
    type Property: Copy;

    /// The first state.
    fn begin(&mut self) -> Self::State;
    /// What may happen in a state.
    fn actions(&self, state: &Self::State, into: &mut Vec<Self::Action>);
    /// What comes of it, and what it breaks.
    fn next(&mut self, state: &Self::State, action: Self::Action) -> (Self::State, Option<Self::Property>);
}

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Found<M: Model> {
    /// Different states.
    pub states: usize,
    /// Steps looked at.
    pub steps: u64,
    /// Steps from the beginning to the farthest state.
    pub depth: u32,
    /// The first violation and one of the shortest ways to it; without one every state was looked at.
    pub violation: Option<(M::Property, Vec<M::Action>)>,
}

/// Looks at every state.
///
/// # Panics
/// There are more than `states_max` of them.
pub fn search<M: Model>(model: &mut M, states_max: usize) -> Found<M> {
    let begin = model.begin();
    let mut seen: Map<M::State, ()> = Map::default();
    seen.insert(begin, ());
    let mut came: Vec<Option<(u32, M::Action)>> = vec![None];
    let mut level = vec![(begin, 0_u32)];
    let mut found = Found { states: 1, steps: 0, depth: 0, violation: None };
    let mut actions = Vec::new();
    while !level.is_empty() {
        let mut next_level = Vec::new();
        for (state, number) in level {
            model.actions(&state, &mut actions);
            for action in &actions {
                found.steps += 1;
                let (next, broken) = model.next(&state, *action);
                if let Some(property) = broken {
                    let mut schedule = vec![*action];
                    let mut at = number;
                    while let Some((before, action)) = came[at as usize] {
                        schedule.push(action);
                        at = before;
                    }
                    schedule.reverse();
                    found.violation = Some((property, schedule));
                    return found;
                }
                if let Entry::Vacant(entry) = seen.entry(next) {
                    entry.insert(());
                    next_level.push((next, crate::number_of(came.len())));
                    came.push(Some((number, *action)));
                    found.states = came.len();
                    assert!(found.states <= states_max, "more than {states_max} states");
                }
            }
        }
        found.depth += u32::from(!next_level.is_empty());
        level = next_level;
    }
    found
}

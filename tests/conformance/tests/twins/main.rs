//! The original and ours, each alone on its own copy of the same storage, are asked the same things in the same order: every reply, the
//! state that STATUS shows and the bytes on disk must be the same after every step.
//!
//! A seed decides what is asked (`chance`): every command of the socket, by processes that register, are killed and hang up, mostly as it
//! should be and sometimes with something wrong. What the two are known to differ in is not asked (`avoid`) or excused (`excuse`), each
//! with its reason. On a difference the run is made again with fewer steps, until those are left that it takes.
//!
//! `TWINS_SEED` plays that seed only, `TWINS_STEPS` is the number of its steps, `TWINS_SEEDS` how many seeds from there on are played, one
//! after the other; `TWINS_SHRINK` is how many times a run is repeated to make it shorter.

mod avoid;
mod chance;
mod disk;
mod excuse;
mod ground;
mod pair;
mod play;
mod request;
mod side;
mod state;

use std::sync::{Arc, Mutex, PoisonError};

use play::Tally;
use sanlock_conformance::{Program, bounded};

/// Seeds and steps of an ordinary run.
const SEEDS: u64 = 8;
const STEPS: u64 = 250;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

#[test]
fn the_same_requests_have_the_same_answers() {
    if !Program::both_available() {
        return;
    }
    let asked = number("TWINS_STEPS");
    let steps = usize::try_from(asked.unwrap_or(STEPS)).unwrap_or(usize::MAX);
    if let Some(first) = number("TWINS_SEED") {
        for seed in first..first + number("TWINS_SEEDS").unwrap_or(1) {
            play::seed(seed, steps);
        }
        return;
    }
    let all = Arc::new(Mutex::new(Tally::default()));
    let parts = (1..=SEEDS).map(|seed| {
        let all = Arc::clone(&all);
        let part: Box<dyn FnOnce() + Send> = Box::new(move || {
            let tally = play::seed(seed, steps);
            all.lock().unwrap_or_else(PoisonError::into_inner).add(tally);
        });
        (format!("seed {seed}"), part)
    });
    bounded::side_by_side(parts.collect());
    let all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.assert_enough(SEEDS * steps as u64, asked.is_none());
}

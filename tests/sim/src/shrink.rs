//! Making a failing run smaller: fewer hosts, disks, resources, processes and kinds of faults, a shorter storm, nothing unusual that
//! is not needed.
//!
//! Whatever is taken away changes what chance does to the rest, although less than it would with a single stream of it
//! ([`crate::dice::Streams`]). So each smaller case is tried with several seeds, and any that violates the same property will do.

use crate::campaign::{Case, Failure};
use crate::fault::{Fault, Faults};
use crate::settings::Settings;
use std::collections::BTreeMap;

/// Seeds tried for each smaller case, in one pass after the other: the one at hand, and others.
const SEEDS: [u64; 3] = [1, 3, 10];

/// The smallest failing case found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// How it ends.
    pub failure: Failure,
    /// Runs it took.
    pub tries: u32,
}

/// Makes a failing case smaller, with at most so many runs. `progress` is told of every smaller one.
pub fn shrink(failure: &Failure, tries_max: u32, mut progress: impl FnMut(&Failure)) -> Shrunk {
    let mut best = Shrunk { failure: failure.clone(), tries: 0 };
    let mut tried = BTreeMap::new();
    for seeds in SEEDS {
        while let Some(smaller) = smaller_one(&mut best, tries_max, seeds, &mut tried) {
            progress(&smaller);
            best.failure = smaller;
        }
    }
    best
}

/// The first smaller case that fails too. What was tried with so many seeds before is passed over.
fn smaller_one(
    best: &mut Shrunk,
    tries_max: u32,
    seeds: u64,
    tried: &mut BTreeMap<String, u64>,
) -> Option<Failure> {
    let Shrunk { failure, tries } = best;
    for settings in candidates(&failure.case.settings, failure.secs) {
        let begun = tried.entry(settings.to_string()).or_default();
        for n in std::mem::replace(begun, seeds.max(*begun))..seeds {
            if *tries >= tries_max {
                return None;
            }
            *tries += 1;
            let case = Case { settings, seed: failure.case.seed.wrapping_add(n << 32), ..failure.case };
            match case.run() {
                Err(found) if found.code() == failure.code() => return Some(*found),
                _ => {}
            }
        }
    }
    None
}

/// Smaller cases, those that save most first.
fn candidates(settings: &Settings, secs: u64) -> Vec<Settings> {
    let Settings { io_timeout, fire, faults, chaos_mean_secs, stormy_secs, .. } = *settings;
    let mut all = Vec::new();
    // A storm is over with the violation. What comes after it needs no long one.
    for shorter in [secs + 1, stormy_secs / 2, stormy_secs * 3 / 4] {
        if (1..stormy_secs).contains(&shorter) {
            all.push(Settings { stormy_secs: shorter, ..*settings });
        }
    }
    // Everything quiet but the faults, or not even those.
    let quiet = Settings { stormy_secs, ..Settings::quiet() };
    let same_times = Settings { io_timeout, fire, ..quiet };
    for calmer in [quiet, same_times] {
        all.push(calmer);
        all.push(Settings { faults, chaos_mean_secs, ..calmer });
    }
    all.extend(fewer_faults(&faults).map(|faults| Settings { faults, ..*settings }));
    all.extend(settings.quieter());
    all.retain(|smaller| smaller != settings && smaller.check().is_ok());
    all
}

/// Half of the kinds that strike, the other half, and all but each of them.
fn fewer_faults(faults: &Faults) -> impl Iterator<Item = Faults> {
    let striking: Vec<Fault> = Fault::ALL.iter().copied().filter(|fault| faults.of(*fault) > 0).collect();
    let half = striking.len() / 2;
    let without = |gone: &[Fault]| gone.iter().fold(*faults, |left, fault| left.without(*fault));
    let mut all = Vec::new();
    if striking.len() > 2 {
        all.push(without(&striking));
        all.push(without(&striking[..half]));
        all.push(without(&striking[half..]));
    }
    all.extend(striking.iter().map(|fault| without(&[*fault])));
    all.into_iter()
}

/// How large a case is, to compare it with another one: what takes part, what is unusual, and the minutes it takes.
#[must_use]
pub fn size(failure: &Failure) -> u64 {
    let s = &failure.case.settings;
    let kinds = Fault::ALL.iter().filter(|fault| s.faults.of(**fault) > 0).count() as u64;
    let unusual = s.to_string().split(',').count() as u64;
    s.ours
        + s.references
        + u64::from(s.disks)
        + u64::from(s.resources)
        + u64::from(s.processes)
        + kinds
        + unusual
        + failure.secs / 60
}

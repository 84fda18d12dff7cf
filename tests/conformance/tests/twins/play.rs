//! A run, and how it is made shorter when it fails.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::chance::Steps;
use crate::pair::{Divergence, LOOK_EVERY, Outcome, Pair};
use crate::request::Step;

/// How often a failed run is repeated to make it shorter, unless `TWINS_SHRINK` says otherwise.
const SHRINK: u64 = 40;

/// A run that failed.
struct Failed {
    divergence: Divergence,
    /// The steps that were made, the last of which it was.
    steps: Vec<Step>,
    /// Of both daemons.
    logs: String,
}

/// What a run consisted of.
#[derive(Debug, Default)]
struct Tally {
    outcomes: BTreeMap<String, u64>,
}

/// Makes the steps that were not avoided the history of a failure.
fn run(steps: impl Iterator<Item = Step>, tally: &mut Tally) -> Result<(), Failed> {
    let mut pair = Pair::start();
    let mut made = Vec::new();
    for (number, step) in steps.enumerate() {
        match pair.step(&step, number % LOOK_EVERY == 0) {
            Ok(Outcome::Parted(why)) => {
                tally.count(&format!("ended: {why}"));
                return Ok(());
            }
            Ok(Outcome::Avoided(why)) => tally.count(&format!("avoided: {why}")),
            Ok(outcome) => {
                tally.count(&name_of(&step, &outcome));
                made.push(step);
            }
            Err(divergence) => {
                made.push(step);
                return Err(Failed { divergence, steps: made, logs: pair.logs() });
            }
        }
    }
    pair.end().map_err(|divergence| Failed { divergence, steps: made, logs: String::new() })
}

impl Tally {
    fn count(&mut self, what: &str) {
        *self.outcomes.entry(what.to_owned()).or_default() += 1;
    }
}

fn name_of(step: &Step, outcome: &Outcome) -> String {
    match (step, outcome) {
        (_, Outcome::Excused(why)) => format!("excused: {why}"),
        (Step::Ask(_, request) | Step::Listen(request), Outcome::Same(result)) => {
            format!(
                "command {:2}: {}",
                request.cmd,
                result.map_or("none".to_owned(), |code| code.to_string())
            )
        }
        (Step::Register(_), _) => "register".to_owned(),
        (Step::Kill(_), _) => "kill".to_owned(),
        (_, _) => "hang up".to_owned(),
    }
}

/// Plays a seed.
///
/// # Panics
/// When the two differ, with the shortest history of it that was found.
pub(crate) fn seed(seed: u64, count: usize) {
    let mut dice = Steps::new(seed);
    let begin = Instant::now();
    let mut tally = Tally::default();
    let outcome = run(std::iter::repeat_with(|| dice.next_step()).take(count), &mut tally);
    let Err(failed) = outcome else {
        eprintln!("seed {seed}: {count} steps in {:?}", begin.elapsed());
        if std::env::var_os("TWINS_TALLY").is_some() {
            eprintln!("{:#?}", tally.outcomes);
        }
        return;
    };
    let at = failed.steps.len();
    eprintln!("seed {seed}: they differ at step {at}:{}\n{}", shown(&failed.divergence), failed.logs);
    let short = shrink(failed);
    let history: Vec<String> = short.steps.iter().map(|step| format!("    {step:?}")).collect();
    panic!(
        "seed {seed}, step {at} of those made: the two differ. The shortest history found:\n{}{}",
        history.join("\n"),
        shown(&short.divergence)
    );
}

fn shown(divergence: &Divergence) -> String {
    let Divergence { what, reference, ours } = divergence;
    format!("\n  {what}\n    original: {reference}\n    ours: {ours}")
}

/// Repeats a run with parts left out, as long as it ends in a difference of the same kind at the same step.
fn shrink(mut failed: Failed) -> Failed {
    let mut tries = crate::number("TWINS_SHRINK").unwrap_or(SHRINK);
    let same = |failed: &Failed, steps: Vec<Step>| -> Option<Failed> {
        let again = run(steps.into_iter(), &mut Tally::default()).err()?;
        let alike =
            again.divergence.what == failed.divergence.what && again.steps.last() == failed.steps.last();
        alike.then_some(again)
    };
    // The last steps alone, more and more of them.
    let mut length = 2;
    while tries > 0 && length < failed.steps.len() {
        tries -= 1;
        let tail = failed.steps[failed.steps.len() - length..].to_vec();
        if let Some(again) = same(&failed, tail) {
            failed = again;
            break;
        }
        length *= 4;
    }
    let mut piece = failed.steps.len() / 2;
    while piece > 0 && tries > 0 {
        let mut from = 0;
        while from + piece < failed.steps.len() && tries > 0 {
            tries -= 1;
            let mut fewer = failed.steps.clone();
            fewer.drain(from..from + piece);
            match same(&failed, fewer) {
                Some(again) => failed = again,
                None => from += piece,
            }
        }
        piece /= 2;
    }
    failed
}

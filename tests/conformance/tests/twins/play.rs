//! A run, and how it is made shorter when it fails.

use std::collections::BTreeMap;
use std::time::Instant;

use sanlock_conformance::raw::cmd;

use crate::chance::Steps;
use crate::pair::{Divergence, LOOK_EVERY, Outcome, Pair};
use crate::request::Step;

/// How often a failed run is repeated to make it shorter, unless `TWINS_SHRINK` says otherwise.
const SHRINK: u64 = 40;

/// How often the eight ordinary runs compare the answers to a command at least, and how often it must have been done: about a third of what
/// they usually do. The choice of steps rarely leads to a conversion that is done, or to a value that is set.
const LEAST: [(u32, u64, u64); 17] = [
    (cmd::ADD_LOCKSPACE, 12, 2),
    (cmd::ACQUIRE, 90, 25),
    (cmd::RELEASE, 85, 20),
    (cmd::INQUIRE, 20, 12),
    (cmd::REQUEST, 25, 12),
    (cmd::CONVERT, 35, 0),
    (cmd::SET_LVB, 12, 0),
    (cmd::WRITE_RESOURCE, 7, 5),
    (cmd::READ_RESOURCE, 6, 5),
    (cmd::READ_RESOURCE_OWNERS, 8, 6),
    (cmd::GET_HOSTS, 4, 3),
    (cmd::REG_EVENT, 10, 8),
    (cmd::SET_EVENT, 10, 7),
    (cmd::CREATE_RESOURCE, 10, 8),
    (cmd::UPDATE_RINDEX, 5, 2),
    (cmd::LOOKUP_RINDEX, 8, 3),
    (cmd::REBUILD_RINDEX, 3, 3),
];

/// A run that failed.
struct Failed {
    divergence: Divergence,
    /// The steps that were made, the last of which it was.
    steps: Vec<Step>,
    /// Of both daemons.
    logs: String,
}

/// What a run consisted of, or several.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    outcomes: BTreeMap<String, u64>,
    /// Steps that were compared.
    compared: u64,
    /// Of each command how many answers were the same, and how many of these said that it was done.
    answers: BTreeMap<u32, (u64, u64)>,
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
                if let Outcome::Same(result) = &outcome {
                    tally.same(&step, *result);
                }
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

    fn same(&mut self, step: &Step, result: Option<i32>) {
        self.compared += 1;
        if let Step::Ask(_, request) | Step::Listen(request) = step {
            let (answers, done) = self.answers.entry(request.cmd).or_default();
            *answers += 1;
            *done += u64::from(result.is_some_and(|code| code >= 0));
        }
    }

    /// Adds what another run consisted of.
    pub(crate) fn add(&mut self, other: Self) {
        for (what, count) in other.outcomes {
            *self.outcomes.entry(what).or_default() += count;
        }
        self.compared += other.compared;
        for (number, (answers, done)) in other.answers {
            let sum = self.answers.entry(number).or_default();
            *sum = (sum.0 + answers, sum.1 + done);
        }
    }

    /// What is avoided, excused or ends a run is a part of it: at least half of all `steps` were compared. In the `ordinary` runs so was
    /// every command, and the most important ones often enough.
    ///
    /// # Panics
    /// When it was less: the two may differ in anything, and nobody would see it.
    pub(crate) fn assert_enough(&self, steps: u64, ordinary: bool) {
        let Self { outcomes, compared, answers } = self;
        assert!(compared * 2 >= steps, "of {steps} steps only {compared} were compared: {outcomes:#?}");
        if !ordinary {
            return;
        }
        let of = |number: u32| answers.get(&number).copied().unwrap_or_default();
        // Number 4 would end the run.
        let never: Vec<u32> = (cmd::ADD_LOCKSPACE..=cmd::REBUILD_RINDEX)
            .filter(|number| *number != cmd::SHUTDOWN && of(*number).0 == 0)
            .collect();
        assert!(never.is_empty(), "commands {never:?} were never compared: {outcomes:#?}");
        for (number, least, least_done) in LEAST {
            let (same, done) = of(number);
            assert!(
                same >= least && done >= least_done,
                "command {number}: {same} answers were compared and {done} said that it was done, at least {least} and {least_done} \
                 are usual: {outcomes:#?}"
            );
        }
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

/// Plays a seed, and says what was compared.
///
/// # Panics
/// When the two differ, with the shortest history of it that was found.
pub(crate) fn seed(seed: u64, count: usize) -> Tally {
    let mut dice = Steps::new(seed);
    let begin = Instant::now();
    let mut tally = Tally::default();
    let outcome = run(std::iter::repeat_with(|| dice.next_step()).take(count), &mut tally);
    let Err(failed) = outcome else {
        eprintln!("seed {seed}: {count} steps in {:?}", begin.elapsed());
        if std::env::var_os("TWINS_TALLY").is_some() {
            eprintln!("{:#?}", tally.outcomes);
        }
        return tally;
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

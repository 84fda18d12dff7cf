//! What a campaign has come to, kept in a file, so that it goes on where it was when it is started once more: a million host-hours take
//! longer than a machine may be there.
//!
//! The file is replaced as a whole, now and then and at the end. It names the code and the plan, and nothing goes on under another code
//! or another plan: what it says is of one code, whoever ran it in however many sittings. Runs that had begun and not ended are begun
//! again, so that in the end every seed up to the last has been run once.

use crate::campaign::{Plan, Report, Totals};
use crate::checks::Marks;
use crate::fault::{Fault, Struck};
use crate::report;
use crate::settings::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Where a campaign is.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// What its runs came to.
    pub report: Report,
    /// Runs begun of each kind.
    pub begun: Vec<u64>,
    /// Those among them that have not ended: the kind's place in the plan, and the run's number.
    pub under_way: BTreeSet<(usize, u64)>,
    /// Begun in an earlier sitting, and not ended in it.
    pub again: BTreeSet<(usize, u64)>,
    /// How long all sittings before this one took.
    pub took: Duration,
    /// How many there were, this one included.
    pub sittings: u64,
}

impl Standing {
    /// Before the first run.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let kinds: Vec<_> = plan.host_hours.iter().map(|(kind, _)| (*kind, Totals::default())).collect();
        let begun = vec![0; kinds.len()];
        Self { report: Report { kinds, failure: None }, begun, sittings: 1, ..Self::default() }
    }

    /// The next run: one that an earlier sitting did not end, or one of the kind that is the furthest behind. Given are the kind's place in
    /// the plan and the run's number.
    pub(crate) fn next(&mut self, plan: &Plan) -> Option<(usize, u64)> {
        if self.report.failure.is_some() {
            return None;
        }
        let next = self.again.pop_first().or_else(|| self.fresh(plan))?;
        self.under_way.insert(next);
        Some(next)
    }

    fn fresh(&mut self, plan: &Plan) -> Option<(usize, u64)> {
        let part = |at: usize| {
            let (_, wanted) = plan.host_hours[at];
            self.report.kinds[at].1.host_hours() / wanted
        };
        let open = (0..plan.host_hours.len()).filter(|at| plan.host_hours[*at].1 > 0.0 && part(*at) < 1.0);
        let at = open.min_by(|a, b| part(*a).total_cmp(&part(*b)))?;
        let number = self.begun[at];
        self.begun[at] += 1;
        Some((at, number))
    }

    /// Where the campaign of this file was; `None` if there is no file.
    ///
    /// # Errors
    /// It cannot be read, it is of another plan or other code, or it ended at a violation.
    pub fn load(path: &Path, plan: &Plan, code: &str) -> Result<Option<Self>, String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        let told: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let of = |wanted: Value, what: &str| {
            let found = &told[what];
            let differs = format!(
                "{}: of a campaign with {what} {found}, this one has {wanted}; name another file for it, or remove this one",
                path.display()
            );
            if *found == wanted { Ok(()) } else { Err(differs) }
        };
        of(code.into(), "code")?;
        of(plan_json(plan), "plan")?;
        if !told["violation"].is_null() {
            return Err(format!(
                "{}: its campaign ended at a violation: {}",
                path.display(),
                told["violation"]
            ));
        }
        let standing = standing(&told, plan);
        standing.map(Some).ok_or_else(|| format!("{}: not the record of a campaign", path.display()))
    }

    /// Writes the file, whole or not at all. `took` is how long this sitting took.
    ///
    /// # Errors
    /// What went wrong with the file.
    pub fn save(&self, path: &Path, plan: &Plan, code: &str, took: Duration) -> Result<(), String> {
        let text = self.json(plan, code, took);
        let beside = path.with_extension("new");
        let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|e| format!("{}: {e}", path.display()))
    }

    fn json(&self, plan: &Plan, code: &str, took: Duration) -> String {
        let open = |at: usize| -> Vec<u64> {
            let open = self.under_way.union(&self.again).filter(|(kind, _)| *kind == at);
            open.map(|(_, number)| *number).collect()
        };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let kind = |at: usize, (kind, totals): &(Kind, Totals)| {
            let mut told = report::totals_json(totals);
            told["host_us"] = micros(totals.host_time).into();
            told["cpu_us"] = micros(totals.cpu).into();
            told["begun"] = self.begun.get(at).copied().unwrap_or(0).into();
            told["not_ended"] = open(at).into();
            (kind.name().to_owned(), told)
        };
        let kinds: Map<String, Value> =
            self.report.kinds.iter().enumerate().map(|(at, told)| kind(at, told)).collect();
        let all = self.report.all();
        let told = json!({
            "code": code,
            "plan": plan_json(plan),
            "sittings": self.sittings,
            "seconds": (self.took + took).as_secs(),
            "all": report::totals_json(&all),
            "violation": self.report.failure.as_ref().map(ToString::to_string),
            "kinds": kinds,
        });
        format!("{told:#}\n")
    }
}

fn plan_json(plan: &Plan) -> Value {
    let hours: Map<String, Value> =
        plan.host_hours.iter().map(|(kind, hours)| (kind.name().to_owned(), (*hours).into())).collect();
    json!({ "first_seed": plan.first, "host_hours": hours, "peer_every": plan.peer_every })
}

fn standing(told: &Value, plan: &Plan) -> Option<Standing> {
    let mut at = Standing::new(plan);
    for (place, (kind, totals)) in at.report.kinds.iter_mut().enumerate() {
        let told = &told["kinds"][kind.name()];
        *totals = totals_of(told)?;
        at.begun[place] = told["begun"].as_u64()?;
        for number in told["not_ended"].as_array()? {
            at.again.insert((place, number.as_u64()?));
        }
    }
    at.took = Duration::from_secs(told["seconds"].as_u64()?);
    at.sittings = told["sittings"].as_u64()? + 1;
    Some(at)
}

fn totals_of(told: &Value) -> Option<Totals> {
    let mut struck = Struck::default();
    for fault in Fault::ALL {
        struck.count_times(*fault, told["faults"][fault.name()].as_u64()?);
    }
    Some(Totals {
        runs: told["runs"].as_u64()?,
        mixed: told["runs_with_reference_peer"].as_u64()?,
        host_time: Duration::from_micros(told["host_us"].as_u64()?),
        cpu: Duration::from_micros(told["cpu_us"].as_u64()?),
        struck,
        marks: Marks::counted(|name| told["reached"][name].as_u64())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign;
    use std::ops::ControlFlow;

    fn plan() -> Plan {
        Plan { first: 7, host_hours: vec![(Kind::Dense, 3.0), (Kind::Long, 20.0)], threads: 1, peer_every: 2 }
    }

    #[test]
    fn a_campaign_goes_on_where_it_was() {
        let plan = plan();
        let kept = tempfile::tempdir().expect("a directory");
        let path = kept.path().join("campaign.json");
        assert!(matches!(Standing::load(&path, &plan, "A"), Ok(None)), "no file, no campaign");
        let mut sittings = 0;
        let last = loop {
            let from = Standing::load(&path, &plan, "A").expect("a record");
            let from = from.unwrap_or_else(|| Standing::new(&plan));
            sittings += 1;
            assert_eq!((from.sittings, from.took.as_secs()), (sittings, 3 * (sittings - 1)));
            // It is killed while a run of each kind is under way.
            let ended = campaign::run(&plan, from, |at| {
                let mut cut = at.clone();
                for kind in 0..2 {
                    cut.under_way.insert((kind, cut.begun[kind]));
                    cut.begun[kind] += 1;
                }
                cut.save(&path, &plan, "A", Duration::from_secs(3)).expect("saved");
                if at.report.all().runs % 2 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let hours = |at: usize| ended.report.kinds[at].1.host_hours();
            if (0..2).all(|at| hours(at) >= plan.host_hours[at].1) {
                break ended;
            }
        };
        assert!(sittings > 2, "{sittings}");
        assert!(last.under_way.is_empty() && last.again.is_empty(), "{last:?}");
        // Every seed was run once, and all that they came to is there.
        for (at, (_, totals)) in last.report.kinds.iter().enumerate() {
            let mut sum = Totals::default();
            for number in 0..last.begun[at] {
                let case = plan.case(at, number);
                sum.add(&Totals::of(&case, &case.run().expect("no violation"), Duration::ZERO));
            }
            let figures = |t: &Totals| (t.runs, t.mixed, t.host_time, t.struck, t.marks);
            assert_eq!(figures(totals), figures(&sum));
        }
    }

    #[test]
    fn nothing_goes_on_under_other_code_or_another_plan_or_after_a_violation() {
        let plan = plan();
        let kept = tempfile::tempdir().expect("a directory");
        let path = kept.path().join("campaign.json");
        let mut at = Standing::new(&plan);
        at.save(&path, &plan, "A", Duration::ZERO).expect("saved");
        assert!(Standing::load(&path, &plan, "A").is_ok_and(|at| at.is_some()));
        let refused = |plan: &Plan, code: &str| Standing::load(&path, plan, code).map(|_| ()).unwrap_err();
        assert!(
            refused(&plan, "B").contains("with code \"A\", this one has \"B\""),
            "{}",
            refused(&plan, "B")
        );
        let other = Plan { first: 8, ..plan.clone() };
        assert!(refused(&other, "A").contains("\"first_seed\":7"), "{}", refused(&other, "A"));
        let case = plan.case(0, 0);
        at.report.failure =
            Some(Box::new(campaign::Failure { case, violation: "S1: two".to_owned(), secs: 5 }));
        at.save(&path, &plan, "A", Duration::ZERO).expect("saved");
        assert!(refused(&plan, "A").contains("S1: two"), "{}", refused(&plan, "A"));
        std::fs::write(&path, "{}").expect("written");
        assert!(refused(&plan, "A").contains("with code null"), "{}", refused(&plan, "A"));
    }
}

//! What a campaign came to, as text and as JSON.

use crate::campaign::{Report, Totals};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// One line while it goes on.
#[must_use]
pub fn brief(report: &Report) -> String {
    let all = report.all();
    format!("{} runs, {:.0}", all.runs, all.host_hours())
}

fn row(out: &mut String, name: &str, totals: &Totals) {
    let hours = totals.host_hours();
    let per_hour = |times: u64| times as f64 / hours.max(f64::MIN_POSITIVE);
    let _infallible = writeln!(
        out,
        "{name:<8} {:>7} {:>10.1} {:>9.1} {:>8.1} {:>10} {:>8.2} {:>11} {:>8.2} {:>10}",
        totals.runs,
        hours,
        totals.cpu.as_secs_f64(),
        totals.cost_ms(),
        totals.large_faults(),
        per_hour(totals.large_faults()),
        totals.bad_ios(),
        per_hour(totals.bad_ios()),
        totals.marks.acquired + totals.marks.shared,
    );
}

/// Tables: runs, host-hours and cost by kind; how often each fault struck; what was reached.
#[must_use]
pub fn text(report: &Report, took: Duration) -> String {
    let mut out = String::new();
    let _infallible = writeln!(
        out,
        "{:<8} {:>7} {:>10} {:>9} {:>8} {:>10} {:>8} {:>11} {:>8} {:>10}",
        "kind", "runs", "host-hours", "CPU s", "ms/h", "faults", "/h", "bad ops", "/h", "granted"
    );
    for (kind, totals) in &report.kinds {
        row(&mut out, kind.name(), totals);
    }
    let all = report.all();
    row(&mut out, "all", &all);
    let names = |report: &Report| {
        report.kinds.iter().map(|(kind, _)| format!("{:>10}", kind.name())).collect::<String>()
    };
    let _infallible = writeln!(out, "\n{:<24}{}", "fault", names(report));
    for (fault, _) in all.struck.all() {
        let times = report.kinds.iter().map(|(_, t)| format!("{:>10}", t.struck.of(fault)));
        let _infallible = writeln!(out, "{:<24}{}", fault.name(), times.collect::<String>());
    }
    let _infallible = writeln!(out, "\n{:<24}{}", "reached", names(report));
    for (name, _) in all.marks.all() {
        let of = |t: &Totals| t.marks.all().find(|(n, _)| *n == name).map_or(0, |(_, times)| times);
        let times = report.kinds.iter().map(|(_, t)| format!("{:>10}", of(t)));
        let _infallible = writeln!(out, "{name:<24}{}", times.collect::<String>());
    }
    let ended = match &report.failure {
        None => "no violation".to_owned(),
        Some(failure) => format!("VIOLATION: {failure}"),
    };
    let _infallible = writeln!(
        out,
        "\n{} runs ({} with a reference peer), {:.1} host-hours in {} s: {ended}",
        all.runs,
        all.mixed,
        all.host_hours(),
        took.as_secs()
    );
    out
}

/// What runs came to, as a JSON object.
pub(crate) fn totals_json(totals: &Totals) -> Value {
    let faults: Map<String, Value> =
        totals.struck.all().map(|(fault, times)| (fault.name().to_owned(), times.into())).collect();
    let reached: Map<String, Value> =
        totals.marks.all().map(|(name, times)| (name.to_owned(), times.into())).collect();
    json!({
        "runs": totals.runs,
        "runs_with_reference_peer": totals.mixed,
        "host_hours": totals.host_hours(),
        "cpu_seconds": totals.cpu.as_secs_f64(),
        "cpu_ms_per_host_hour": totals.cost_ms(),
        "large_faults": totals.large_faults(),
        "bad_operations": totals.bad_ios(),
        "faults": faults,
        "reached": reached,
    })
}

/// The same as a JSON object, ended by a line feed.
#[must_use]
pub fn json(report: &Report, took: Duration) -> String {
    let kinds: Map<String, Value> =
        report.kinds.iter().map(|(kind, totals)| (kind.name().to_owned(), totals_json(totals))).collect();
    let violation = report.failure.as_ref().map(|failure| {
        json!({
            "violation": failure.violation,
            "seed": failure.case.seed,
            "settings": failure.case.settings.to_string(),
            "replay": failure.case.command(),
        })
    });
    let all = json!({
        "seconds": took.as_secs_f64(),
        "all": totals_json(&report.all()),
        "kinds": kinds,
        "violation": violation,
    });
    format!("{all:#}\n")
}

//! The three lists: a heading each, and a line for each thing.

use super::{Look, spark};
use crate::app::{App, Health, Pane, health, left};
use crate::args::Sort;
use crate::snapshot::{Host, Lease, Lockspace};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use sanlock_client::wire::flags::HostState;

/// Columns before the renewals.
const BEFORE_RENEWALS: usize = 55;

/// Text in exactly so many columns: cut, or filled with blanks.
pub(super) fn fit(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = Span::raw(c.to_string()).width();
        if used + wide > width {
            break;
        }
        used += wide;
        out.push(c);
    }
    out.extend(std::iter::repeat_n(' ', width - used));
    out
}

fn heading(text: String, focus: bool) -> Line<'static> {
    let mut style = Style::new().add_modifier(Modifier::BOLD);
    if focus {
        style = style.add_modifier(Modifier::UNDERLINED);
    }
    Line::styled(text, style)
}

pub(super) fn lockspaces_heading(app: &App, width: usize) -> Line<'static> {
    let renewals = match app.sort {
        Sort::Name => "RENEWALS",
        Sort::Left => "RENEWALS (least left first)",
        Sort::Latency => "RENEWALS (slowest first)",
    };
    let text = format!(
        "  {} {:>4} {:<8} {:>4} {:>4} {:>11}  {renewals}",
        fit("LOCKSPACE", 14),
        "ID",
        "STATE",
        "AGE",
        "LEFT",
        "LAST ms"
    );
    heading(fit(&text, width).trim_end().to_owned(), app.focus == Pane::Lockspaces)
}

pub(super) fn lockspace(
    lockspace: &Lockspace,
    selected: bool,
    look: Look,
    passed: u64,
    width: usize,
) -> Line<'static> {
    let health = health(lockspace, passed);
    let joined = health != Health::Joining;
    let number = |number: Option<u64>| {
        number.filter(|_| joined).map_or("-".to_owned(), |number| number.min(9999).to_string())
    };
    let last = lockspace.renewals.last();
    let last = last.map_or("-".to_owned(), |last| format!("{}/{}", last.read_ms, last.write_ms));
    let mark = if selected { "> " } else { "  " };
    let name = if selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    let mut spans = vec![
        Span::raw(mark),
        Span::styled(fit(&lockspace.name, 14), name),
        Span::raw(format!(" {:>4} ", lockspace.host_id)),
        Span::styled(format!("{:<8}", health.word()), look.of(health)),
        Span::raw(format!(
            " {:>4} {:>4} {:>11}  ",
            number(Some(lockspace.age.saturating_add(passed))),
            number(left(lockspace, passed)),
            last
        )),
    ];
    spans.extend(spark::line(lockspace, look, width.saturating_sub(BEFORE_RENEWALS)));
    Line::from(spans)
}

/// ` 1-8 of 200` where not all are shown.
fn window((from, shown): (usize, usize), of: usize) -> String {
    if shown >= of { format!(" ({of})") } else { format!(" ({}-{} of {of})", from + 1, from + shown) }
}

pub(super) fn hosts_heading(lockspace: &Lockspace, focus: bool, shown: (usize, usize)) -> Line<'static> {
    let of = match &lockspace.hosts {
        None => " (not known yet)".to_owned(),
        Some(hosts) => window(shown, hosts.len()),
    };
    let name = fit(&format!("HOST{of} OF {}", lockspace.name), 30);
    heading(format!("  {:>4} {name} {:>6} {:<8} {:>6} {:>3}", "ID", "GEN", "STATE", "SILENT", "IO"), focus)
}

pub(super) fn host(host: &Host, look: Look, passed: u64) -> Line<'static> {
    let silent =
        host.silent.map_or("-".to_owned(), |seconds| seconds.saturating_add(passed).min(999_999).to_string());
    let style = match host.state {
        Some(HostState::Live) => look.of(Health::Good),
        Some(HostState::Fail) => look.of(Health::Warning),
        Some(HostState::Dead) => look.of(Health::Failed),
        _ => Style::new(),
    };
    Line::from(vec![
        Span::raw(format!("  {:>4} {} {:>6} ", host.host_id, fit(&host.name, 30), host.generation)),
        Span::styled(format!("{:<8}", host.state.map_or("?", HostState::name)), style),
        Span::raw(format!(" {silent:>6} {:>3}", host.io_timeout)),
    ])
}

pub(super) fn leases_heading(name: &str, of: usize, focus: bool, shown: (usize, usize)) -> Line<'static> {
    let name = fit(&format!("LEASE{} IN {name}", window(shown, of)), 35);
    heading(format!("  {name} {:<9} {:>7} {:>7} {}", "MODE", "VERSION", "PID", "PROCESS"), focus)
}

pub(super) fn lease(app: &App, lease: &Lease) -> Line<'static> {
    let process = app
        .snapshot
        .iter()
        .flat_map(|snapshot| &snapshot.processes)
        .find(|process| process.pid == lease.pid)
        .map_or("", |process| process.name.as_str());
    let (pid, process) = match lease.list.as_str() {
        "orphan" => ("-".to_owned(), "ORPHAN"),
        "add" => (lease.pid.to_string(), "(being acquired)"),
        "rem" => ("-".to_owned(), "(being released)"),
        _ => (lease.pid.to_string(), process),
    };
    let mode = if lease.shared { "shared" } else { "exclusive" };
    let resource = fit(&lease.resource, 35);
    Line::raw(format!("  {resource} {mode:<9} {:>7} {pid:>7} {process}", lease.version))
}

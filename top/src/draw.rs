//! The screen as lines of text, for a terminal of any size, and the same as plain text.

mod list;
mod spark;

use crate::app::{App, Health, Pane, health};
use crate::snapshot::{Lockspace, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// A terminal that is smaller than this shows nothing useful.
const SIZE_MIN: (u16, u16) = (40, 12);
/// Lines that are no list: title, summary, three headings, what is said of the selected lockspace, keys.
const FIXED_LINES: usize = 7;

const HELP: [&str; 21] = [
    "q, Ctrl-C      quit",
    "Up, Down, k, j select a lockspace, or move in hosts or leases",
    "PgUp, PgDn, Home, End   the same in larger steps",
    "Tab            from lockspaces to hosts to leases",
    "s              sort lockspaces: by name, by time left, by latency",
    "r, space       ask the daemon now",
    "?, h           this text; any key leaves it",
    "",
    "STATE  ok; late: a renewal has missed its time; WARNING: the daemon warns;",
    "       FAILED: the processes that use the lockspace are stopped",
    "AGE    seconds since the last good renewal; one is due at 2 io timeouts",
    "LEFT   seconds until the lockspace fails, at 8 io timeouts",
    "LAST   milliseconds that the last renewal's read and write took",
    "RENEWALS  read and write together, the newest at the right, from a",
    "       millisecond to the io timeout in equal factors; ! a failed attempt",
    "",
    "LIVE   a host renews    FAIL  it has not for 8 io timeouts",
    "DEAD   its leases may be taken    FREE  it has left    UNKNOWN  not known",
    "SILENT seconds since its record was seen to change",
    "",
    "'sanlock who' and 'sanlock explain' say more about a lease and a number.",
];

/// How a terminal wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether there may be colours.
    pub(crate) colours: bool,
    /// Whether there is more than ASCII.
    pub(crate) unicode: bool,
}

impl Look {
    fn fg(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new().add_modifier(Modifier::BOLD) }
    }

    /// What is wrong stands out without colours, too.
    fn of(self, health: Health) -> Style {
        match health {
            Health::Good if self.colours => Style::new().fg(Color::Green),
            Health::Good | Health::Joining | Health::Leaving => Style::new(),
            Health::Late => self.fg(Color::Yellow),
            Health::Warning => self.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            Health::Failed => self.fg(Color::Red).add_modifier(Modifier::BOLD | Modifier::REVERSED),
        }
    }
}

/// Draws the screen. `passed`: seconds since the daemon answered.
pub(crate) fn draw(app: &App, look: Look, passed: u64, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let lines = if area.width < SIZE_MIN.0 || area.height < SIZE_MIN.1 {
        let (w, h) = SIZE_MIN;
        vec![Line::raw(format!("{width}x{height} is too small:")), Line::raw(format!("{w}x{h} is needed"))]
    } else if app.help {
        let mut lines = vec![title(app, passed, width)];
        lines.extend(HELP.map(Line::raw));
        lines
    } else {
        screen(app, look, passed, width, height)
    };
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_line(area.x, y, &line, area.width);
    }
}

/// Everything as plain text: all lockspaces with all their hosts and leases, or only `of`.
pub(crate) fn text(app: &App, unicode: bool, width: usize, of: Option<&str>) -> String {
    let look = Look { colours: false, unicode };
    let chosen: Vec<&Lockspace> = app
        .lockspaces(0)
        .into_iter()
        .filter(|lockspace| of.is_none_or(|name| lockspace.name == name))
        .collect();
    let mut lines = vec![title(app, 0, width), summary(app, look, 0)];
    lines.push(list::lockspaces_heading(app, width));
    lines.extend(chosen.iter().map(|lockspace| list::lockspace(lockspace, false, look, 0, width)));
    for lockspace in chosen {
        let (hosts, leases) = (App::hosts(lockspace), app.leases(&lockspace.name));
        lines.push(Line::default());
        lines.push(detail(lockspace));
        lines.push(list::hosts_heading(lockspace, false, (0, hosts.len())));
        lines.extend(hosts.iter().map(|host| list::host(host, look, 0)));
        lines.push(list::leases_heading(&lockspace.name, leases.len(), false, (0, leases.len())));
        lines.extend(leases.iter().map(|lease| list::lease(app, lease)));
    }
    let mut out = String::new();
    for line in lines {
        let line: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn screen(app: &App, look: Look, passed: u64, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(app, passed, width), summary(app, look, passed)];
    let all = app.lockspaces(passed);
    let Some(current) = app.current(passed) else {
        if app.snapshot.is_some() {
            lines.push(Line::raw("This host is in no lockspace; 'sanlock client add_lockspace' joins one."));
        }
        lines.resize(height - 1, Line::default());
        lines.push(keys(app));
        return lines;
    };
    let (hosts, leases) = (App::hosts(current), app.leases(&current.name));
    let rooms = share(height - FIXED_LINES, [all.len(), hosts.len(), leases.len()]);
    app.rooms.set([rooms[1], rooms[2]]);
    lines.push(list::lockspaces_heading(app, width));
    // The selected one is always among those that are shown.
    let at = all.iter().position(|lockspace| lockspace.name == current.name).unwrap_or(0);
    let first = (at + 1).saturating_sub(rooms[0]);
    for lockspace in all.iter().skip(first).take(rooms[0]) {
        lines.push(list::lockspace(lockspace, lockspace.name == current.name, look, passed, width));
    }
    lines.push(detail(current));
    let from = app.hosts_from.min(hosts.len().saturating_sub(rooms[1]));
    let window = (from, rooms[1].min(hosts.len()));
    lines.push(list::hosts_heading(current, app.focus == Pane::Hosts, window));
    lines.extend(hosts.iter().skip(from).take(rooms[1]).map(|host| list::host(host, look, passed)));
    let from = app.leases_from.min(leases.len().saturating_sub(rooms[2]));
    let window = (from, rooms[2].min(leases.len()));
    lines.push(list::leases_heading(&current.name, leases.len(), app.focus == Pane::Leases, window));
    lines.extend(leases.iter().skip(from).take(rooms[2]).map(|lease| list::lease(app, lease)));
    lines.resize(height - 1, Line::default());
    lines.push(keys(app));
    lines
}

/// Lines for each of three lists: as many as it has, and where that is too much for all, none gets more than a longer one.
fn share(total: usize, wanted: [usize; 3]) -> [usize; 3] {
    let mut rooms = [0; 3];
    let mut rest = total;
    while rest > 0 {
        let before = rest;
        for (room, wanted) in rooms.iter_mut().zip(wanted) {
            if *room < wanted && rest > 0 {
                *room += 1;
                rest -= 1;
            }
        }
        if rest == before {
            break;
        }
    }
    rooms
}

fn title(app: &App, passed: u64, width: usize) -> Line<'static> {
    let text = match &app.snapshot {
        None => " sanlock top".to_owned(),
        Some(Snapshot { host_name, version, watchdog, .. }) => {
            let watchdog = if *watchdog { "" } else { ", NO WATCHDOG" };
            format!(" sanlock top: {host_name}, daemon {version}{watchdog}")
        }
    };
    let date = if passed > u64::from(app.interval) {
        format!(" {} ({passed} s ago) ", app.date)
    } else {
        format!(" {} ", app.date)
    };
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let room = width.saturating_sub(Span::raw(&date).width());
    Line::from(vec![Span::styled(list::fit(&text, room), style), Span::styled(date, style)])
}

fn summary(app: &App, look: Look, passed: u64) -> Line<'static> {
    let bad = look.of(Health::Failed);
    if let Some(reason) = &app.away {
        let old = if app.snapshot.is_some() { " What follows is its last answer." } else { "" };
        return Line::styled(format!(" NO DAEMON: {reason}.{old}"), bad);
    }
    let Some(snapshot) = &app.snapshot else {
        return Line::raw(format!(" Waiting for the daemon's answer, {passed} s so far."));
    };
    // Between two questions nothing is late; an answer that takes longer than both is.
    if passed > 2 * u64::from(app.interval) + 3 {
        let text = format!(" NO ANSWER for {passed} s: the daemon stands still, or this host is too busy.");
        return Line::styled(text, bad);
    }
    let orphans = snapshot.leases.iter().filter(|lease| lease.list == "orphan").count();
    let wrong = snapshot
        .lockspaces
        .iter()
        .filter(|lockspace| {
            matches!(health(lockspace, passed), Health::Late | Health::Warning | Health::Failed)
        })
        .count();
    let mut text = format!(
        " {}, {}, {}",
        count(snapshot.lockspaces.len(), "lockspace"),
        count(snapshot.leases.len(), "lease"),
        count(snapshot.processes.len(), "process")
    );
    if orphans > 0 {
        text.push_str(&format!(", {}", count(orphans, "orphan")));
    }
    if wrong > 0 {
        text.push_str(&format!(", {wrong} in trouble"));
        return Line::styled(text, look.of(Health::Warning));
    }
    Line::raw(text)
}

fn count(number: usize, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "process") => format!("{number} processes"),
        _ => format!("{number} {what}s"),
    }
}

/// What does not fit a line of the list.
fn detail(lockspace: &Lockspace) -> Line<'static> {
    let read = lockspace.renewals.iter().map(|renewal| renewal.read_ms).max();
    let write = lockspace.renewals.iter().map(|renewal| renewal.write_ms).max();
    let failed =
        lockspace.renewals.iter().fold(0u64, |sum, renewal| sum.saturating_add(renewal.failed_after()));
    let timeout =
        lockspace.io_timeout.map_or("unknown".to_owned(), |timeout| format!("{} s", timeout.secs()));
    let mut text = format!(" {}, generation {}, io timeout {timeout}", lockspace.place, lockspace.generation);
    if let (Some(read), Some(write)) = (read, write) {
        let failed = if failed > 0 { format!("{failed} failed, ") } else { String::new() };
        let of = lockspace.renewals.len();
        text.push_str(&format!("; {failed}slowest of {of} {read}/{write} ms"));
    }
    Line::raw(text)
}

fn keys(app: &App) -> Line<'static> {
    let text = format!(
        " q quit   Up/Down select   Tab next list   s sort: {}   ? help   every {} s",
        app.sort.word(),
        app.interval
    );
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

#[cfg(test)]
mod tests;

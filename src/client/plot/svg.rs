//! The picture: above how long each transfer took, below how long the lease went without a good renewal.
//!
//! Plain SVG with nothing in it but lines and text, so that any browser shows it and nothing has to be linked for it.

use super::History;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
/// Left and right end of both panels.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 940.0;
/// Top and bottom of the panel of transfers.
const TRANSFERS: (f64, f64) = (90.0, 300.0);
/// Top and bottom of the panel of gaps.
const GAPS: (f64, f64) = (360.0, 510.0);
/// The history has whole milliseconds: what is below one is drawn here.
const BELOW_ONE_MS: f64 = 0.5;
/// Labels of the time axis at most.
const TICKS_MAX: u64 = 9;

// Told apart by people who see no red and green, too.
const READ: &str = "#0072b2";
const WRITE: &str = "#e69f00";
const GAP: &str = "#56b4e9";
const LIMIT: &str = "#d62728";
const GRID: &str = "#dddddd";

/// The whole file.
pub(super) fn draw(history: &History) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let failed =
        history.renewals.iter().fold(0u64, |sum, renewal| sum.saturating_add(renewal.failed_after()));
    let title = format!("Renewals of lockspace {}", history.lockspace);
    text(&mut out, (LEFT, 26.0), "font-size=\"16\"", &title);
    let summary = format!(
        "{} renewals until {}, io timeout {} s, {failed} failed attempts",
        history.renewals.len(),
        history.date,
        history.io_timeout.secs()
    );
    text(&mut out, (LEFT, 46.0), "", &summary);
    let time = Time::of(history);
    time.axis(&mut out);
    transfers(&mut out, history, &time);
    gaps(&mut out, history, &time);
    out.push_str("</svg>\n");
    out
}

/// The common axis of both panels: from the first renewal to the moment of drawing.
struct Time {
    first: u64,
    now: u64,
}

impl Time {
    fn of(history: &History) -> Self {
        let times = || history.renewals.iter().map(|renewal| renewal.timestamp);
        // The clock was read after the answer; a daemon that counts otherwise must not turn the picture round.
        let (first, last) = (times().min().unwrap_or(0).min(u64::MAX - 1), times().max().unwrap_or(0));
        Self { first, now: history.now.max(last).max(first + 1) }
    }

    fn x(&self, timestamp: u64) -> f64 {
        let (from, to) = (self.first, self.now);
        let part = small(timestamp.clamp(from, to) - from) / small(to - from);
        LEFT + (RIGHT - LEFT) * part
    }

    /// Seconds between two labels: a step that people count in.
    fn step(&self) -> u64 {
        let span = self.now - self.first;
        let steps =
            [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
        steps.into_iter().find(|step| span / step <= TICKS_MAX).unwrap_or(span / TICKS_MAX)
    }

    fn axis(&self, out: &mut String) {
        let step = self.step();
        for ago in (0..=(self.now - self.first) / step).map(|n| n * step) {
            let x = self.x(self.now - ago);
            for (top, bottom) in [TRANSFERS, GAPS] {
                line(out, (x, top), (x, bottom), GRID, "");
            }
            text(out, (x, GAPS.1 + 16.0), "text-anchor=\"middle\"", &duration(ago));
        }
        let middle = (LEFT + RIGHT) / 2.0;
        text(out, (middle, GAPS.1 + 36.0), "text-anchor=\"middle\"", "time before the picture was made");
    }
}

fn transfers(out: &mut String, history: &History, time: &Time) {
    let slowest = history.renewals.iter().map(|r| r.read_ms.max(r.write_ms)).max().unwrap_or(0);
    let limit = small(history.io_timeout.millis());
    let high = (small(slowest).max(limit) * 2.0).log10();
    let low = BELOW_ONE_MS.log10();
    let y = |ms: f64| {
        let part = (ms.max(BELOW_ONE_MS).log10() - low) / (high - low);
        TRANSFERS.1 - (TRANSFERS.1 - TRANSFERS.0) * part
    };
    text(out, (LEFT, TRANSFERS.0 - 12.0), "", "How long each transfer took, in ms");
    text(
        out,
        (RIGHT, TRANSFERS.0 - 12.0),
        &format!("text-anchor=\"end\" fill=\"{WRITE}\""),
        "● write of the own record",
    );
    text(
        out,
        (RIGHT - 170.0, TRANSFERS.0 - 12.0),
        &format!("text-anchor=\"end\" fill=\"{READ}\""),
        "● read of all records",
    );
    frame(out, TRANSFERS);
    level(out, y(BELOW_ONE_MS), "<1");
    let mut power = 1.0;
    while power < 10f64.powf(high) {
        level(out, y(power), &format!("{power}"));
        power *= 10.0;
    }
    for (colour, ms) in [
        (READ, (|r| r.read_ms) as fn(&sanlock_client::Renewal) -> u64),
        (WRITE, |r: &sanlock_client::Renewal| r.write_ms),
    ] {
        for renewal in &history.renewals {
            dot(out, (time.x(renewal.timestamp), y(small(ms(renewal)))), colour);
        }
    }
    let words = format!("io timeout, {} s: a read that takes longer has failed", history.io_timeout.secs());
    mark(out, y(limit), &words);
}

fn gaps(out: &mut String, history: &History, time: &Time) {
    let timeout = history.io_timeout;
    let mut bars: Vec<(u64, u64, u64)> = Vec::new();
    let ends = history.renewals.iter().skip(1).map(|next| next.timestamp).chain([time.now]);
    for (renewal, end) in history.renewals.iter().zip(ends) {
        bars.push((renewal.timestamp, end, renewal.failed_after()));
    }
    let longest = bars.iter().map(|(from, to, _)| to.saturating_sub(*from)).max().unwrap_or(0);
    let high = small(longest.max(timeout.renewal_fail_secs())) * 1.15;
    let y = |seconds: u64| GAPS.1 - (GAPS.1 - GAPS.0) * small(seconds) / high;
    text(out, (LEFT, GAPS.0 - 12.0), "", "How old the lease was when it was renewed, in s");
    let words = "✖ attempts that failed in between; the last bar is the age now";
    text(out, (RIGHT, GAPS.0 - 12.0), &format!("text-anchor=\"end\" fill=\"{LIMIT}\""), words);
    frame(out, GAPS);
    level(out, y(0), "0");
    for (from, to, failed) in bars {
        // The lease gets old from one renewal to the next: a saw tooth.
        let (left, right) = (time.x(from), time.x(to));
        let age = to.saturating_sub(from);
        let _ = writeln!(
            out,
            "<polygon points=\"{left:.1},{:.1} {right:.1},{:.1} {right:.1},{:.1}\" fill=\"{GAP}\"/>",
            GAPS.1,
            y(age),
            GAPS.1
        );
        if failed > 0 {
            let words = format!("✖{failed}");
            let style = format!("text-anchor=\"end\" fill=\"{LIMIT}\"");
            text(out, (right, (y(age) - 4.0).max(GAPS.0 + 12.0)), &style, &words);
        }
    }
    for (seconds, words) in [
        (timeout.renewal_secs(), "the next renewal is due"),
        (timeout.renewal_warn_secs(), "warned about every second"),
        (timeout.renewal_fail_secs(), "the lockspace has failed: its users are stopped"),
    ] {
        mark(out, y(seconds), &format!("{seconds} s: {words}"));
    }
}

/// What has to fit the picture is small; what a daemon invents beyond that is drawn at its end.
fn small(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// `90 s`, `5 min`, `2 h`.
fn duration(seconds: u64) -> String {
    match seconds {
        0 => "now".to_owned(),
        s if s % 3600 == 0 => format!("{} h", s / 3600),
        s if s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

fn frame(out: &mut String, (top, bottom): (f64, f64)) {
    let (width, height) = (RIGHT - LEFT, bottom - top);
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#888888\"/>"
    );
}

/// A line across a panel with its number at the left.
fn level(out: &mut String, y: f64, label: &str) {
    line(out, (LEFT, y), (RIGHT, y), GRID, "");
    text(out, (LEFT - 6.0, y + 4.0), "text-anchor=\"end\"", label);
}

/// A limit.
fn mark(out: &mut String, y: f64, words: &str) {
    line(out, (LEFT, y), (RIGHT, y), LIMIT, " stroke-dasharray=\"6 4\"");
    text(out, (LEFT + 6.0, y - 4.0), &format!("fill=\"{LIMIT}\""), words);
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, more: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"{more}/>",
        from.0, from.1, to.0, to.1
    );
}

fn dot(out: &mut String, (x, y): (f64, f64), colour: &str) {
    let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>");
}

fn text(out: &mut String, (x, y): (f64, f64), style: &str, words: &str) {
    let blank = if style.is_empty() { "" } else { " " };
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\"{blank}{style}>{}</text>", escaped(words));
}

/// Names come from a disk: what XML would read as markup, or cannot hold, is written otherwise.
fn escaped(words: &str) -> String {
    let mut out = String::new();
    for c in words.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_client::Renewal;
    use sanlock_lease::timing::IoTimeout;

    fn renewal(timestamp: u64, read_ms: u64, write_ms: u64, next_timeouts: u64) -> Renewal {
        Renewal { timestamp, read_ms, write_ms, next_timeouts, next_errors: 0 }
    }

    fn history(renewals: Vec<Renewal>, now: u64) -> History {
        History {
            lockspace: "LS".to_owned(),
            io_timeout: IoTimeout::DEFAULT,
            renewals,
            now,
            date: "2026-11-22 12:00:00".to_owned(),
        }
    }

    /// The numbers of an attribute, of all lines that have `with`.
    fn numbers(svg: &str, with: &str, attribute: &str) -> Vec<f64> {
        let key = format!(" {attribute}=\"");
        svg.lines()
            .filter(|line| line.contains(with))
            .filter_map(|line| line.split_once(&key)?.1.split('"').next()?.parse().ok())
            .collect()
    }

    #[test]
    fn an_outage_rises_to_the_limits_and_says_how_many_attempts_failed() {
        let svg = draw(&history(
            vec![renewal(1000, 3, 5, 0), renewal(1020, 4, 9000, 4), renewal(1100, 2, 1, 0)],
            1110,
        ));
        for words in [
            "Renewals of lockspace LS",
            "3 renewals until 2026-11-22 12:00:00, io timeout 10 s, 4 failed",
            "io timeout, 10 s",
            "20 s: the next",
            "60 s: warned",
            "80 s: the lockspace has failed",
            ">✖4</text>",
            ">now</text>",
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        // Higher is further up: the first gap ends at "due", the second at "failed", the last bar is half as high as the first.
        let limits = numbers(&svg, "dasharray", "y1");
        let [_, due, warn, fail] = limits[..] else { panic!("{limits:?}") };
        assert!(fail < warn && warn < due, "{limits:?}");
        let tops: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<polygon"))
            .map(|line| line.split(' ').nth(2).unwrap().split_once(',').unwrap().1.parse().unwrap())
            .collect();
        assert_eq!(tops[..2], [due, fail]);
        assert!((GAPS.1 - tops[2] - (GAPS.1 - due) / 2.0).abs() < 0.2, "{tops:?}");
        // A slow write is drawn higher than a fast one, and below the io timeout.
        let writes = numbers(&svg, &format!("r=\"2.5\" fill=\"{WRITE}\""), "cy");
        assert!(writes[1] < writes[0] && writes[0] < writes[2] && limits[0] < writes[1], "{writes:?}");
        assert_eq!(numbers(&svg, "<circle", "cx").len(), 6);
    }

    #[test]
    fn everything_stays_on_the_picture() {
        let hostile = [
            vec![renewal(5, 0, 0, 0)],
            vec![renewal(u64::MAX, u64::MAX, u64::MAX, u64::MAX), renewal(0, u64::MAX, 0, u64::MAX)],
            vec![renewal(0, 1, 1, 0), renewal(u64::MAX, 1, 1, 0)],
            (0..5000).map(|n| renewal(n * 20, 1 + n % 40_000, 1, n % 3)).collect(),
        ];
        for renewals in hostile {
            let svg = draw(&history(renewals, 100));
            for (attribute, size) in [("x", WIDTH), ("y", HEIGHT), ("cx", WIDTH), ("cy", HEIGHT)] {
                for number in numbers(&svg, "<", attribute) {
                    assert!((0.0..=size).contains(&number), "{attribute} {number}");
                }
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg:.2000}");
        }
    }

    #[test]
    fn names_are_no_markup() {
        let mut history = history(vec![renewal(1, 1, 1, 0)], 2);
        history.lockspace = "<b>&\u{1}".to_owned();
        let svg = draw(&history);
        assert!(svg.contains("lockspace &lt;b&gt;&amp;\\u{1}<"), "{svg}");
    }

    #[test]
    fn labels_of_the_time_axis_are_few_and_round() {
        for (span, step) in [(1, 1), (60, 10), (3600, 600), (86_400, 14_400), (10_000_000, 1_111_111)] {
            let time = Time { first: 0, now: span };
            assert_eq!(time.step(), step, "{span}");
            let mut out = String::new();
            time.axis(&mut out);
            assert!(out.matches("<text").count() <= 12, "{out}");
        }
        assert_eq!([0, 45, 300, 7200].map(duration), ["now", "45 s", "5 min", "2 h"]);
    }
}

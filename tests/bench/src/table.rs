//! The rows as text.

use std::fmt::Write;

use crate::figures::Figures;
use crate::row::{Check, Row};

const HEAD: [&str; 8] = ["measure", "unit", "original", "ours", "p99 orig.", "p99 ours", "ratio", "raw"];
/// Widths of the columns behind the first.
const WIDTHS: [usize; 7] = [4, 10, 10, 10, 10, 7, 10];
/// Width of the first column at least.
const NAME_WIDTH: usize = 46;

/// The table of one kind of storage. `median (p99)` columns are empty where there are no figures.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = line(HEAD.map(str::to_owned));
    text.truncate(text.trim_end().len());
    text.push_str("  wanted\n");
    for row in rows {
        text.push_str(&one(row));
    }
    text
}

/// One row, with its note on a line of its own.
#[must_use]
pub fn one(row: &Row) -> String {
    let median = |figures: &Option<Figures>| figures.as_ref().map_or(String::new(), |f| number(f.median()));
    // Of a single sample, and of few, it is the largest: that says nothing.
    let tail = |figures: &Option<Figures>| match figures {
        Some(figures) if figures.count() >= 100 => number(figures.p99()),
        _ => String::new(),
    };
    let mut text = line([
        row.title(),
        row.unit.word().to_owned(),
        median(&row.original),
        median(&row.ours),
        tail(&row.original),
        tail(&row.ours),
        row.ratio().map_or(String::new(), |ratio| format!("{ratio:.3}")),
        median(&row.floor),
    ]);
    let checks: Vec<String> = row.checks.iter().map(check).collect();
    text.push_str("  ");
    text.push_str(&checks.join(", "));
    text.truncate(text.trim_end().len());
    text.push('\n');
    if !row.note.is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "    note: {}", row.note);
    }
    text
}

/// `met` or `MISSED`, with what was wanted.
#[must_use]
pub fn check(check: &Check) -> String {
    let verdict = if check.met() { "met" } else { "MISSED" };
    let sign = if check.at_least { ">=" } else { "<=" };
    format!("{verdict}: {} {} {sign} {}", check.what, number(check.got), number(check.wanted))
}

fn line(cells: [String; 8]) -> String {
    let [name, rest @ ..] = cells;
    let mut text = format!("{name:<NAME_WIDTH$}");
    for (cell, width) in rest.iter().zip(WIDTHS) {
        let _ = write!(text, " {cell:>width$}");
    }
    text
}

/// Three or four digits that matter.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Unit;

    #[test]
    fn a_row_shows_its_figures_and_whether_they_suffice() {
        let row = Row::new("acquire", Unit::Micros, vec![2000.0], vec![1000.0])
            .with_floor(vec![900.0])
            .ratio_wanted(0.45)
            .floor_wanted(1.15)
            .noting("a note");
        let text = one(&row);
        assert!(text.starts_with("acquire "), "{text}");
        assert!(text.contains(" 0.500 "), "{text}");
        assert!(
            text.contains("MISSED: ours/original 0.500 <= 0.450, met: ours/raw 1.111 <= 1.150\n"),
            "{text}"
        );
        assert!(text.ends_with("    note: a note\n"), "{text}");
    }

    #[test]
    fn every_row_has_a_line_under_the_head() {
        let row = Row::new("a", Unit::PerSecond, vec![1.0], vec![]).sized(8, "clients");
        let text = table(&[row.clone(), row]);
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.matches("a (8 clients)").count(), 2);
    }

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        assert_eq!(number(12345.678), "12346");
        assert_eq!(number(123.456), "123.5");
        assert_eq!(number(12.345), "12.35");
        assert_eq!(number(0.45), "0.450");
    }
}

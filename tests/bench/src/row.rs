//! One line of the table: a measure, what both programs came to, and what was wanted.

use crate::figures::Figures;

/// Measuring error allowed where ours must not be slower than the original: a part of the original's figure.
const NOT_SLOWER_MARGIN: f64 = 0.02;

/// What the figures count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds: less is better.
    Micros,
    /// Milliseconds: less is better.
    Millis,
    /// Seconds: less is better.
    Seconds,
    /// Operations per second: more is better.
    PerSecond,
    /// KiB: less is better.
    Kibibytes,
    /// A number: less is better.
    Count,
    /// Percent of a fair share: more is better.
    Percent,
}

impl Unit {
    /// For tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Micros => "us",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::PerSecond => "/s",
            Self::Kibibytes => "KiB",
            Self::Count => "",
            Self::Percent => "%",
        }
    }

    /// Whether a larger figure is the better one.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::PerSecond | Self::Percent)
    }
}

/// Something that ours must reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is compared, as `ours/original`.
    pub what: &'static str,
    /// What was measured.
    pub got: f64,
    /// Whether `wanted` is the least or the most.
    pub at_least: bool,
    /// The limit.
    pub wanted: f64,
}

impl Check {
    /// Whether it has been reached.
    #[must_use]
    pub fn met(&self) -> bool {
        if self.at_least { self.got >= self.wanted } else { self.got <= self.wanted }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was done, a short word of the measure's module.
    pub name: &'static str,
    /// How many clients, hosts, lockspaces or leases, and what they are.
    pub size: Option<(u64, &'static str)>,
    /// What the figures count.
    pub unit: Unit,
    /// The original's figures.
    pub original: Option<Figures>,
    /// Ours.
    pub ours: Option<Figures>,
    /// The same chain of reads and writes without a daemon.
    pub floor: Option<Figures>,
    /// What has to be reached.
    pub checks: Vec<Check>,
    /// What a reader should know.
    pub note: String,
}

impl Row {
    /// A row with the figures of both programs, each `None` where there were none.
    #[must_use]
    pub fn new(name: &'static str, unit: Unit, original: Vec<f64>, ours: Vec<f64>) -> Self {
        Self {
            name,
            size: None,
            unit,
            original: Figures::of(original),
            ours: Figures::of(ours),
            floor: None,
            checks: Vec::new(),
            note: String::new(),
        }
    }

    /// The same with a number of `what`.
    #[must_use]
    pub fn sized(mut self, number: u64, what: &'static str) -> Self {
        self.size = Some((number, what));
        self
    }

    /// The same with the figures without a daemon.
    #[must_use]
    pub fn with_floor(mut self, samples: Vec<f64>) -> Self {
        self.floor = Figures::of(samples);
        self
    }

    /// The same with something that a reader should know.
    #[must_use]
    pub fn noting(mut self, note: impl Into<String>) -> Self {
        let note = note.into();
        if !self.note.is_empty() && !note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(&note);
        self
    }

    /// Median of ours through the median of the original.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        quotient(self.ours.as_ref()?.median(), self.original.as_ref()?.median())
    }

    /// The 99th percentile of ours through that of the original.
    #[must_use]
    pub fn p99_ratio(&self) -> Option<f64> {
        quotient(self.ours.as_ref()?.p99(), self.original.as_ref()?.p99())
    }

    /// Median of ours through the median without a daemon.
    #[must_use]
    pub fn floor_ratio(&self) -> Option<f64> {
        quotient(self.ours.as_ref()?.median(), self.floor.as_ref()?.median())
    }

    /// The ratio of the medians must be on the right side of `wanted`: at most that, or at least where more is better.
    #[must_use]
    pub fn ratio_wanted(self, wanted: f64) -> Self {
        let (got, at_least) = (self.ratio(), self.unit.more_is_better());
        self.check("ours/original", got, at_least, wanted)
    }

    /// The same of the 99th percentiles.
    #[must_use]
    pub fn p99_wanted(self, wanted: f64) -> Self {
        let (got, at_least) = (self.p99_ratio(), self.unit.more_is_better());
        self.check("p99 ours/original", got, at_least, wanted)
    }

    /// The same against the figures without a daemon.
    #[must_use]
    pub fn floor_wanted(self, wanted: f64) -> Self {
        let (got, at_least) = (self.floor_ratio(), self.unit.more_is_better());
        self.check("ours/raw", got, at_least, wanted)
    }

    /// Our median itself must be on the right side of `wanted`.
    #[must_use]
    pub fn ours_wanted(self, wanted: f64) -> Self {
        let (got, at_least) = (self.ours.as_ref().map(Figures::median), self.unit.more_is_better());
        self.check("ours", got, at_least, wanted)
    }

    /// What holds for every row that has nothing stricter: ours is not the worse one.
    #[must_use]
    pub fn not_slower(self) -> Self {
        let margin = if self.unit.more_is_better() { -NOT_SLOWER_MARGIN } else { NOT_SLOWER_MARGIN };
        self.ratio_wanted(1.0 + margin)
    }

    /// Whether all that was wanted has been reached.
    #[must_use]
    pub fn met(&self) -> bool {
        self.checks.iter().all(Check::met)
    }

    /// The name with its number.
    #[must_use]
    pub fn title(&self) -> String {
        match self.size {
            Some((number, what)) => format!("{} ({number} {what})", self.name),
            None => self.name.to_owned(),
        }
    }

    /// A figure that was not to be had meets nothing.
    fn check(mut self, what: &'static str, got: Option<f64>, at_least: bool, wanted: f64) -> Self {
        self.checks.push(Check { what, got: got.unwrap_or(f64::NAN), at_least, wanted });
        self
    }
}

fn quotient(of: f64, through: f64) -> Option<f64> {
    (through > 0.0).then(|| of / through)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_better_for_times_and_more_for_rates() {
        let time = Row::new("a", Unit::Micros, vec![100.0], vec![50.0]);
        assert!(time.clone().ratio_wanted(0.5).met());
        assert!(!time.ratio_wanted(0.49).met());
        let rate = Row::new("a", Unit::PerSecond, vec![100.0], vec![170.0]);
        assert!(rate.clone().ratio_wanted(1.7).met());
        assert!(!rate.ratio_wanted(1.8).met());
    }

    #[test]
    fn a_missing_figure_meets_nothing() {
        assert!(!Row::new("a", Unit::Micros, vec![], vec![1.0]).not_slower().met());
        assert!(!Row::new("a", Unit::PerSecond, vec![1.0], vec![]).not_slower().met());
        assert!(!Row::new("a", Unit::Micros, vec![0.0], vec![1.0]).not_slower().met());
    }

    #[test]
    fn not_slower_leaves_room_for_the_measuring_error() {
        assert!(Row::new("a", Unit::Micros, vec![100.0], vec![101.0]).not_slower().met());
        assert!(!Row::new("a", Unit::Micros, vec![100.0], vec![103.0]).not_slower().met());
        assert!(Row::new("a", Unit::PerSecond, vec![100.0], vec![99.0]).not_slower().met());
        assert!(!Row::new("a", Unit::PerSecond, vec![100.0], vec![97.0]).not_slower().met());
    }

    #[test]
    fn the_floor_and_the_tail_count_too() {
        let row = Row::new("a", Unit::Micros, vec![10.0, 1000.0], vec![10.0, 90.0]).with_floor(vec![45.0]);
        assert!(row.clone().p99_wanted(0.1).met());
        assert!(row.clone().floor_wanted(1.15).met());
        assert!(!row.floor_wanted(1.1).met());
    }
}

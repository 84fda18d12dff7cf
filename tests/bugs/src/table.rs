//! What came of every patch: the file that the runner writes, and the table in docs/proof/bugs.md.

use crate::patch::Patch;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The row of the tree without a patch.
pub const UNPATCHED: &str = "unpatched";
/// Where the table begins in the page.
pub const BEGIN: &str = "<!-- table -->";
/// Where it ends.
pub const END: &str = "<!-- end of table -->";

/// How a catcher works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Runs of the simulator with faults by chance; nobody wrote down what is to happen.
    Random,
    /// Every schedule within limits.
    Exhaustive,
    /// One schedule that somebody wrote down.
    Scenario,
}

impl Kind {
    /// All of them, in the order in which they are tried if a patch expects nothing else.
    pub const ALL: [Self; 3] = [Self::Random, Self::Exhaustive, Self::Scenario];

    /// As tables say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random campaign",
            Self::Exhaustive => "exhaustive model",
            Self::Scenario => "scenario",
        }
    }

    /// The order in which they are tried: first what the patch expects.
    #[must_use]
    pub fn order(patch: &Patch) -> Vec<Self> {
        let mut all = Self::ALL.to_vec();
        all.sort_by_key(|kind| !patch.catcher.starts_with(kind.name()));
        all
    }
}

/// A bug that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catch {
    /// By what.
    pub kind: Kind,
    /// The violated property, or the test.
    pub by: String,
    /// How much was tried until then.
    pub after: String,
    /// Wall time of the catcher, its build not counted.
    pub took: Duration,
}

/// The rows by the names of patches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results(pub BTreeMap<String, Row>);

/// What came of one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `caught`, `missed`, or `passed` for the tree without a patch.
    pub verdict: String,
    /// By what: `random campaign`, …; what was spent if nothing was caught.
    pub kind: String,
    /// The property or test.
    pub by: String,
    /// How much was tried.
    pub after: String,
    /// Seconds.
    pub seconds: String,
}

const HEADER: &str = "\
# Written by `cargo run -p sanlock-bugs`. One row for each patch, and one for the tree without any.
# patch | verdict | kind of catcher | what it found | after | seconds
";

impl Row {
    /// The row of a bug that was caught.
    #[must_use]
    pub fn caught(catch: &Catch) -> Self {
        Self {
            verdict: "caught".to_owned(),
            kind: catch.kind.name().to_owned(),
            by: catch.by.clone(),
            after: catch.after.clone(),
            seconds: format!("{:.1}", catch.took.as_secs_f64()),
        }
    }

    /// The row of a tree in which nothing was found.
    #[must_use]
    pub fn nothing(verdict: &str, spent: &[String], took: Duration) -> Self {
        Self {
            verdict: verdict.to_owned(),
            kind: "none".to_owned(),
            by: "nothing".to_owned(),
            after: spent.join("; "),
            seconds: format!("{:.1}", took.as_secs_f64()),
        }
    }
}

impl Results {
    /// Reads the runner's file.
    ///
    /// # Errors
    /// A line is no row.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let row = |line: &str| {
            let fields: Vec<String> = line.split('|').map(|field| field.trim().to_owned()).collect();
            let [name, verdict, kind, by, after, seconds] =
                <[String; 6]>::try_from(fields).map_err(|_| format!("not 6 fields: {line:?}"))?;
            Ok((name, Row { verdict, kind, by, after, seconds }))
        };
        rows.map(row).collect::<Result<_, String>>().map(Self)
    }

    /// As the runner writes it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = HEADER.to_owned();
        for (name, row) in &self.0 {
            let Row { verdict, kind, by, after, seconds } = row;
            let _infallible = writeln!(text, "{name} | {verdict} | {kind} | {by} | {after} | {seconds}");
        }
        text
    }

    /// The table of the page.
    #[must_use]
    pub fn markdown(&self, patches: &[Patch]) -> String {
        let mut text =
            "| Bug | Breaks | Caught by | Found | After | Seconds |\n|---|---|---|---|---|---|\n".to_owned();
        let none = Row::nothing("not run", &[], Duration::ZERO);
        for patch in patches {
            let row = self.0.get(&patch.name).unwrap_or(&none);
            let kind = if row.verdict == "caught" { &row.kind } else { &row.verdict };
            let _infallible = writeln!(
                text,
                "| `{}`: {} | {} | {kind} | {} | {} | {} |",
                patch.name, patch.what, patch.breaks, row.by, row.after, row.seconds
            );
        }
        if let Some(row) = self.0.get(UNPATCHED) {
            let Row { verdict, by, after, seconds, .. } = row;
            let _infallible = writeln!(text, "| none | | {verdict} | {by} | {after} | {seconds} |");
        }
        text
    }

    /// The page with its table replaced.
    ///
    /// # Errors
    /// The page has no place for a table.
    pub fn page(&self, page: &str, patches: &[Patch]) -> Result<String, String> {
        let (head, rest) = page.split_once(BEGIN).ok_or_else(|| format!("no {BEGIN}"))?;
        let (_, tail) = rest.split_once(END).ok_or_else(|| format!("no {END}"))?;
        Ok(format!("{head}{BEGIN}\n{}{END}{tail}", self.markdown(patches)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_were_written() {
        let took = Duration::from_millis(1250);
        let (by, after) = ("S1".to_owned(), "12 runs, 9.3 host-hours".to_owned());
        let caught = Row::caught(&Catch { kind: Kind::Random, by, after, took });
        let missed = Row::nothing("missed", &["400 host-hours".to_owned(), "7 schedules".to_owned()], took);
        let results = Results([("01-a".to_owned(), caught), ("02-b".to_owned(), missed)].into());
        assert_eq!(Results::parse(&results.text()), Ok(results));
        assert!(Results::parse("01-a | caught").is_err());
    }
}

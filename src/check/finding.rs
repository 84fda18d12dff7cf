//! What is to be said about a set-up: seen, why it matters, what to do.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Worth knowing.
    Note,
    /// Works until something else fails.
    Warning,
    /// Does not work, or does not protect.
    Problem,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "WARNING",
            Self::Problem => "PROBLEM",
        }
    }
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// A name that does not change between versions.
    pub(super) code: &'static str,
    pub(super) level: Level,
    /// What was seen, and where.
    pub(super) seen: String,
    /// Why it matters.
    pub(super) why: String,
    /// What to do.
    pub(super) advice: String,
}

/// Gathers findings.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    fn add(&mut self, code: &'static str, level: Level, seen: String, why: &str, advice: &str) {
        let (why, advice) = (why.to_owned(), advice.to_owned());
        self.0.push(Finding { code, level, seen, why, advice });
    }

    pub(super) fn note(&mut self, code: &'static str, seen: impl Into<String>, why: &str, advice: &str) {
        self.add(code, Level::Note, seen.into(), why, advice);
    }

    pub(super) fn warning(&mut self, code: &'static str, seen: impl Into<String>, why: &str, advice: &str) {
        self.add(code, Level::Warning, seen.into(), why, advice);
    }

    pub(super) fn problem(&mut self, code: &'static str, seen: impl Into<String>, why: &str, advice: &str) {
        self.add(code, Level::Problem, seen.into(), why, advice);
    }

    /// How many there are.
    pub(super) fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|f| f.level == level).count()
    }

    /// The worst of them.
    pub(super) fn worst(&self) -> Option<Level> {
        self.0.iter().map(|f| f.level).max()
    }
}

//! The record of what was judged: figures for each file, and every survivor with a reason.
//!
//! ```text
//! file wire/src/decoder.rs
//! digest 00a1b2c3d4e5f607
//! mutants 94 unviable 3 caught 87 timeout 3
//! survivor @29 replace * with +
//!   in const KEEP_BUFFER: usize = 8 * 1024;
//!   equivalent: how much memory an idle connection keeps is not part of what it does
//!
//! file lease/src/code.rs
//! not run
//! ```

use crate::source;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Of a package's viable mutants that are not equivalent to the code, at least this share is killed.
pub const KILLED_PERCENT: usize = 95;

/// Of the mutants of a package, at most this share may belong to files that have changed since, or that were never judged. A change of
/// the product costs nothing here until a third of a package has changed; then the figures say too little about what is shipped.
pub const STALE_PERCENT: usize = 33;

/// What a survivor's reason begins with while it is to be killed, or nobody knows why it survives.
pub const OPEN: &str = "open";

/// What it begins with where nobody can tell the mutant from the code.
pub const EQUIVALENT: &str = "equivalent: ";

/// A mutant that no test notices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// The change ([`crate::mutant::Mutant::what`]).
    pub what: String,
    /// Where in the line, in characters.
    pub column: usize,
    /// The line, without the white space around it.
    pub line: String,
    /// `equivalent: …`, or `open`.
    pub reason: String,
}

/// What judging a file brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Of the code ([`source::digest`]).
    pub digest: u64,
    /// All.
    pub mutants: usize,
    /// Those that don't compile.
    pub unviable: usize,
    /// Those that fail a test.
    pub caught: usize,
    /// Those that make a test run on without end, or take memory without end.
    pub timeout: usize,
}

/// A file's part of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From the repository's root.
    pub file: String,
    /// `None`: not run.
    pub figures: Option<Figures>,
    /// In the order of the file.
    pub survivors: Vec<Survivor>,
}

impl Entry {
    /// A file that was not judged.
    #[must_use]
    pub const fn not_run(file: String) -> Self {
        Self { file, figures: None, survivors: Vec::new() }
    }

    /// Killed mutants.
    #[must_use]
    pub fn killed(&self) -> usize {
        self.figures.map_or(0, |f| f.caught + f.timeout)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file {}", self.file)?;
        let Some(Figures { digest, mutants, unviable, caught, timeout }) = self.figures else {
            return writeln!(f, "not run");
        };
        writeln!(
            f,
            "digest {digest:016x}\nmutants {mutants} unviable {unviable} caught {caught} timeout {timeout}"
        )?;
        for Survivor { what, column, line, reason } in &self.survivors {
            writeln!(f, "survivor @{column} {what}\n  in {line}\n  {reason}")?;
        }
        Ok(())
    }
}

/// Reads a record; lines that begin with `#` are comments.
///
/// # Errors
/// The line that is none.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let taken = if let Some(file) = line.strip_prefix("file ") {
            entries.push(Entry::not_run(file.to_owned()));
            Some(())
        } else {
            entries.last_mut().and_then(|entry| add_line(entry, line))
        };
        taken.ok_or_else(|| format!("not a line of a record of mutants: {line:?}"))?;
    }
    Ok(entries)
}

fn add_line(entry: &mut Entry, line: &str) -> Option<()> {
    if let Some(digest) = line.strip_prefix("digest ") {
        let digest = u64::from_str_radix(digest, 16).ok()?;
        entry.figures = Some(Figures { digest, ..Figures::default() });
    } else if let Some(line) = line.strip_prefix("  in ") {
        entry.survivors.last_mut()?.line = line.to_owned();
    } else if let Some(reason) = line.strip_prefix("  ") {
        entry.survivors.last_mut()?.reason = reason.to_owned();
    } else if let Some(survivor) = line.strip_prefix("survivor @") {
        let (column, what) = survivor.split_once(' ')?;
        let (what, line, reason) = (what.to_owned(), String::new(), String::new());
        entry.survivors.push(Survivor { what, column: column.parse().ok()?, line, reason });
    } else if line != "not run" {
        let figures = entry.figures.as_mut()?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["mutants", mutants, "unviable", unviable, "caught", caught, "timeout", timeout] = words[..]
        else {
            return None;
        };
        figures.mutants = mutants.parse().ok()?;
        figures.unviable = unviable.parse().ok()?;
        figures.caught = caught.parse().ok()?;
        figures.timeout = timeout.parse().ok()?;
    }
    Some(())
}

/// Whether what an entry says of the file still applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The code is the one that was judged.
    Fresh,
    /// The code has changed.
    Stale,
    /// It never was judged.
    NotRun,
}

/// How the record of one package stands against its code.
#[derive(Debug, Default)]
pub struct Standing {
    /// Each recorded file that exists.
    pub files: BTreeMap<String, State>,
    /// Mutants of all files. Of those that were not run the number is not known; each counts as the mean of the others.
    pub mutants: usize,
    /// Of these, in files that are stale or not run.
    pub stale: usize,
    /// Viable mutants in all recorded files.
    pub viable: usize,
    /// Killed ones among them.
    pub killed: usize,
    /// Those among them that nobody can tell from the code.
    pub equivalent: usize,
    /// What is wrong.
    pub errors: Vec<String>,
}

/// Holds a record against the code: `texts` has every file that is to be recorded.
#[must_use]
pub fn check(entries: &[Entry], texts: &HashMap<String, String>) -> Standing {
    let mut standing = Standing::default();
    let mut unknown = 0;
    for entry in entries {
        let file = &entry.file;
        let Some(text) = texts.get(file) else {
            standing
                .errors
                .push(format!("{file}: recorded, but no such file is judged; take it out of the record"));
            continue;
        };
        let state = match entry.figures {
            None => State::NotRun,
            Some(figures) if figures.digest == source::digest(text) => State::Fresh,
            Some(_) => State::Stale,
        };
        if standing.files.insert(file.clone(), state).is_some() {
            standing.errors.push(format!("{file}: recorded twice"));
        }
        let figures = entry.figures.unwrap_or_default();
        standing.mutants += figures.mutants;
        standing.viable += entry.killed() + entry.survivors.len();
        standing.killed += entry.killed();
        standing.equivalent += entry.survivors.iter().filter(|s| s.reason.starts_with(EQUIVALENT)).count();
        match state {
            State::NotRun => unknown += 1,
            State::Stale => standing.stale += figures.mutants,
            State::Fresh if entry.killed() + entry.survivors.len() + figures.unviable != figures.mutants => {
                standing
                    .errors
                    .push(format!("{file}: the figures do not add up to {} mutants", figures.mutants));
            }
            State::Fresh => {}
        }
        standing.errors.extend(entry.survivors.iter().filter_map(|survivor| wrong(entry, survivor, text)));
    }
    let missing = texts.keys().filter(|file| !standing.files.contains_key(*file));
    let missing: Vec<_> = missing.map(|file| format!("{file}: not in the record")).collect();
    standing.errors.extend(missing);
    let judged = standing.files.len() - unknown;
    if unknown > 0 {
        let mean = standing.mutants.checked_div(judged).unwrap_or(1).max(1);
        standing.mutants += mean * unknown;
        standing.stale += mean * unknown;
    }
    let killable = standing.viable - standing.equivalent;
    if standing.killed * 100 < killable * KILLED_PERCENT {
        let killed = standing.killed;
        standing.errors.push(format!(
            "{killed} of {killable} mutants that could be are killed, fewer than {KILLED_PERCENT} %"
        ));
    }
    if standing.stale * 100 > standing.mutants * STALE_PERCENT {
        let Standing { stale, mutants, .. } = standing;
        standing.errors.push(format!(
            "{stale} of {mutants} mutants are in files that changed since they were judged, or were not: more than {STALE_PERCENT} %"
        ));
    }
    standing
}

/// What is wrong with a survivor: its code is gone, or nobody says why it survives.
fn wrong(entry: &Entry, survivor: &Survivor, text: &str) -> Option<String> {
    let Survivor { what, line, reason, .. } = survivor;
    let said = reason.strip_prefix(EQUIVALENT).is_some_and(|reason| !reason.trim().is_empty());
    if !text.lines().any(|l| l.trim() == line) {
        Some(format!(
            "{}: `{line}` is gone, and so is the survivor `{what}`; take it out of the record",
            entry.file
        ))
    } else if said || reason.starts_with(OPEN) {
        None
    } else {
        Some(format!("{}: no reason why `{what}` survives in `{line}`", entry.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "fn f(a: u8) -> bool {\n    a < 2\n}\n";

    fn texts(code: &str) -> HashMap<String, String> {
        HashMap::from(
            ["wire/src/f.rs".to_owned(), "wire/src/g.rs".to_owned()].map(|file| (file, code.to_owned())),
        )
    }

    fn entries() -> Vec<Entry> {
        let survivor = Survivor {
            what: "replace < with <= in f".into(),
            column: 2,
            line: "a < 2".into(),
            reason: "equivalent: a is never 2".into(),
        };
        let figures =
            Figures { digest: source::digest(CODE), mutants: 42, unviable: 1, caught: 38, timeout: 2 };
        let f = Entry { file: "wire/src/f.rs".into(), figures: Some(figures), survivors: vec![survivor] };
        vec![f.clone(), Entry { file: "wire/src/g.rs".into(), ..f }]
    }

    fn errors(entries: &[Entry], texts: &HashMap<String, String>) -> String {
        check(entries, texts).errors.join("\n")
    }

    #[test]
    fn a_record_is_written_and_read() {
        let mut written = entries();
        written.push(Entry::not_run("wire/src/h.rs".into()));
        let text: String = written.iter().map(|e| format!("{e}\n")).collect();
        assert_eq!(parse(&format!("# Comment.\n{text}")), Ok(written));
        for wrong in
            ["digest 0", "file f\ndigest x", "file f\nmutants 1 unviable 0 caught 1 timeout 0", "file f\nx"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_record_that_fits_the_code_stands() {
        let standing = check(&entries(), &texts(&format!("/// Comment.\n{CODE}")));
        assert!(standing.errors.is_empty(), "{:?}", standing.errors);
        assert_eq!((standing.mutants, standing.stale, standing.viable, standing.killed), (84, 0, 82, 80));
    }

    #[test]
    fn what_is_missing_gone_or_without_a_reason_is_named() {
        let mut list = entries();
        list[0].survivors[0].reason.clear();
        assert!(errors(&list, &texts(CODE)).contains("no reason why"));
        list[0].survivors.clear();
        assert!(errors(&list, &texts(CODE)).contains("f.rs: the figures do not add up"));
        assert!(errors(&entries()[..1], &texts(CODE)).contains("g.rs: not in the record"));
        assert!(errors(&entries(), &HashMap::new()).contains("f.rs: recorded, but"));
        assert!(errors(&entries(), &texts("fn f() {}")).contains("`a < 2` is gone"));
    }

    #[test]
    fn stale_files_count_until_they_are_too_many() {
        let mut list = entries();
        let with = |digest, mutants| {
            Some(Figures { digest, mutants, unviable: mutants - 41, caught: 38, timeout: 2 })
        };
        list[0].figures = with(0, 66);
        list[1].figures = with(source::digest(CODE), 134);
        assert_eq!(errors(&list, &texts(CODE)), "");
        list[1].figures = with(source::digest(CODE), 133);
        assert!(errors(&list, &texts(CODE)).contains("66 of 199 mutants are in files that changed"));
        list[0] = Entry::not_run("wire/src/f.rs".into());
        assert!(errors(&list, &texts(CODE)).contains("133 of 266 mutants"));
    }

    #[test]
    fn too_few_kills_are_an_error() {
        let mut list = entries();
        let figures =
            Figures { mutants: 100, unviable: 0, caught: 95, timeout: 0, digest: source::digest(CODE) };
        for entry in &mut list {
            entry.figures = Some(figures);
            entry.survivors = vec![Survivor { reason: OPEN.into(), ..entry.survivors[0].clone() }; 5];
        }
        assert_eq!(errors(&list, &texts(CODE)), "");
        list[0].figures = Some(Figures { caught: 94, ..figures });
        list[0].survivors = vec![list[0].survivors[0].clone(); 6];
        assert!(errors(&list, &texts(CODE)).contains("189 of 200 mutants"));
        // What nobody can tell from the code need not be killed.
        list[0].survivors[0].reason = "equivalent: a is never 2".into();
        assert!(errors(&list, &texts(CODE)).contains("189 of 199 mutants"));
        list[0].survivors[1].reason = "equivalent: a is never 2".into();
        assert_eq!(errors(&list, &texts(CODE)), "");
    }
}

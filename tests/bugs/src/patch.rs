//! Reading and applying patches.
//!
//! A hunk belongs where its lines (context and what is removed) stand, and they must stand there exactly once. Line numbers are not
//! looked at, so changes elsewhere in a file do not make a patch useless.

use std::path::{Path, PathBuf};

/// A bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Its file's name without the extension: number and name.
    pub name: String,
    /// What is broken, in words.
    pub what: String,
    /// Which properties that breaks.
    pub breaks: String,
    /// What is expected to catch it.
    pub catcher: String,
    files: Vec<FilePatch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct FilePatch {
    path: String,
    hunks: Vec<Hunk>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Hunk {
    before: Vec<String>,
    after: Vec<String>,
}

impl Hunk {
    /// The text with this change.
    fn apply(&self, text: &str) -> Result<String, String> {
        let lines: Vec<&str> = text.lines().collect();
        let places: Vec<usize> = lines
            .windows(self.before.len())
            .enumerate()
            .filter(|(_, window)| window.iter().zip(&self.before).all(|(a, b)| a == b))
            .map(|(at, _)| at)
            .collect();
        let [at] = places[..] else {
            return Err(format!("{} places for the hunk\n{}", places.len(), self.before.join("\n")));
        };
        let (head, rest) = lines.split_at(at);
        let tail = rest.get(self.before.len()..).unwrap_or_default();
        let after = self.after.iter().map(String::as_str);
        let all: Vec<&str> = head.iter().copied().chain(after).chain(tail.iter().copied()).collect();
        Ok(all.join("\n") + "\n")
    }
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// The header is not complete, or the diff is none.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (mut what, mut breaks, mut catcher) = (Vec::new(), None, None);
        let mut files: Vec<FilePatch> = Vec::new();
        for line in text.lines() {
            let file = files.last_mut();
            match (file, line) {
                (_, line) if line.starts_with("--- a/") => {
                    files.push(FilePatch { path: line.replacen("--- a/", "", 1), hunks: Vec::new() });
                }
                (None, line) => match line.split_once(": ") {
                    Some(("Breaks", text)) => breaks = Some(text.to_owned()),
                    Some(("Catcher", text)) => catcher = Some(text.to_owned()),
                    _ if line.is_empty() => {}
                    _ => what.push(line),
                },
                (Some(file), line) if line.starts_with("+++ ") => {
                    if line != format!("+++ b/{}", file.path) {
                        return Err(format!("{name}: a file that changes its name"));
                    }
                }
                (Some(file), line) if line.starts_with("@@ ") => file.hunks.push(Hunk::default()),
                (Some(file), line) => {
                    let hunk =
                        file.hunks.last_mut().ok_or_else(|| format!("{name}: {line:?} before a hunk"))?;
                    let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
                    if sign == " " || sign == "-" {
                        hunk.before.push(rest.to_owned());
                    }
                    if sign == " " || sign == "+" {
                        hunk.after.push(rest.to_owned());
                    }
                    if !matches!(sign, " " | "-" | "+") {
                        return Err(format!("{name}: {line:?} in a hunk"));
                    }
                }
            }
        }
        let missing = |field: &str| format!("{name}: the header has no {field:?}");
        if what.is_empty() {
            return Err(missing("words"));
        }
        if files.is_empty() || files.iter().any(|f| f.hunks.is_empty()) {
            return Err(format!("{name}: no diff"));
        }
        Ok(Self {
            name: name.to_owned(),
            what: what.join(" "),
            breaks: breaks.ok_or_else(|| missing("Breaks"))?,
            catcher: catcher.ok_or_else(|| missing("Catcher"))?,
            files,
        })
    }

    /// All patches of a directory, by number.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn all(directory: &Path) -> Result<Vec<Self>, String> {
        let entries = std::fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "patch"));
        paths.sort();
        let read = |path: &PathBuf| {
            let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a name that is not text")?;
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            Self::parse(name, &text)
        };
        paths.iter().map(read).collect()
    }

    /// The files it changes.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|f| f.path.as_str())
    }

    /// The changed files of the tree with this root: path and new text.
    ///
    /// # Errors
    /// It does not apply.
    pub fn apply(&self, root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
        let change = |file: &FilePatch| {
            let path = root.join(&file.path);
            let told = |e: &dyn std::fmt::Display| format!("{}: {}: {e}", self.name, file.path);
            let text = std::fs::read_to_string(&path).map_err(|e| told(&e))?;
            let changed =
                file.hunks.iter().try_fold(text, |text, hunk| hunk.apply(&text)).map_err(|e| told(&e))?;
            Ok((path, changed))
        };
        self.files.iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "A wall\nfalls.\n\nBreaks: S1\nCatcher: random campaign\n\n--- a/x.rs\n+++ b/x.rs\n@@ -9,3 +9,3 @@ fn f()\n a\n-b\n+B\n \n";

    #[test]
    fn a_patch_is_read_and_applied_wherever_its_lines_stand() {
        let patch = Patch::parse("01-wall", TEXT).unwrap();
        assert_eq!((patch.what.as_str(), patch.breaks.as_str()), ("A wall falls.", "S1"));
        let hunk = &patch.files[0].hunks[0];
        assert_eq!(hunk.apply("z\na\nb\n\nc\n").unwrap(), "z\na\nB\n\nc\n");
        assert!(hunk.apply("a\nc\n\n").unwrap_err().starts_with("0 places"));
        assert!(hunk.apply("a\nb\n\na\nb\n\n").unwrap_err().starts_with("2 places"));
    }

    #[test]
    fn a_header_must_be_complete() {
        for field in
            ["A wall\nfalls.\n", "Breaks: S1\n", "Catcher: random campaign\n", "@@ -9,3 +9,3 @@ fn f()\n"]
        {
            assert!(Patch::parse("01-wall", &TEXT.replacen(field, "", 1)).is_err(), "{field:?}");
        }
    }
}

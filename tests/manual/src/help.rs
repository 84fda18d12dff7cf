//! Help texts as data.

use std::collections::BTreeSet;

/// An option as a help text has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opt {
    /// With its dashes: `-h`, `--quick`.
    pub flag: String,
    /// What follows it, as written: `0|1`, `<pid>`, `RESOURCE`.
    pub value: Option<String>,
    /// What it does, where the help text says so.
    pub text: String,
}

/// A command, or an action of `client` or `direct`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// `daemon`, `client gets`.
    pub name: String,
    /// What it does, where the help text says so.
    pub text: String,
    /// In the order of the text, each once.
    pub options: Vec<Opt>,
    /// What stands for itself: `<path>[:<offset>]`.
    pub operands: Vec<String>,
}

impl Entry {
    fn add(&mut self, option: Opt) {
        if !self.options.iter().any(|known| known.flag == option.flag) {
            self.options.push(option);
        }
    }

    /// The flags alone.
    #[must_use]
    pub fn flags(&self) -> BTreeSet<String> {
        self.options.iter().map(|option| option.flag.clone()).collect()
    }
}

/// The words that an option's value is one of; none, if it may be anything.
#[must_use]
pub fn choices(value: &str) -> Vec<&str> {
    let words: Vec<&str> = value.split('|').collect();
    let plain = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric());
    if words.len() > 1 && words.iter().all(plain) { words } else { Vec::new() }
}

/// Commands and actions of `sanlock help`, in its order: a list of commands after `commands:`, lines `sanlock COMMAND …` with what
/// each takes in brackets, and the options of `daemon` indented under its line.
#[must_use]
pub fn sanlock(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut listing = false;
    let mut described: Option<usize> = None;
    for line in text.lines() {
        if line == "commands:" {
            listing = true;
            continue;
        }
        if line.is_empty() {
            listing = false;
            described = None;
            continue;
        }
        if listing {
            if let Some((name, text)) = line.trim().split_once(char::is_whitespace) {
                let (name, text) = (name.to_owned(), text.trim().to_owned());
                entries.push(Entry { name, text, ..Entry::default() });
            }
            continue;
        }
        if let (Some(at), Some(option)) = (described, described_option(line)) {
            entries[at].add(option);
            continue;
        }
        let mut words = line.split_whitespace();
        if words.next() != Some("sanlock") {
            continue;
        }
        let Some(command) = words.next().filter(|word| !word.starts_with('<')) else { continue };
        let name = match (command, words.clone().next()) {
            ("client" | "direct", Some(action)) => {
                words.next();
                format!("{command} {action}")
            }
            _ => command.to_owned(),
        };
        let at = entries.iter().position(|entry| entry.name == name).unwrap_or_else(|| {
            entries.push(Entry { name, ..Entry::default() });
            entries.len() - 1
        });
        described = Some(at);
        let words: Vec<&str> = words.filter(|word| *word != "[options]").collect();
        synopsis(&words, &mut entries[at]);
    }
    entries
}

/// `-s LOCKSPACE [-o <sec>] [--quick] <path>[:<offset>]`
fn synopsis(words: &[&str], entry: &mut Entry) {
    let bare = |word: &str| word.trim_start_matches('[').trim_end_matches(']').to_owned();
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        at += 1;
        let flag = bare(word);
        if flag == "|" {
            continue;
        }
        if !flag.starts_with('-') {
            // Brackets inside belong to it.
            entry.operands.push(word.to_owned());
            continue;
        }
        let takes_value = |next: &&&str| !word.ends_with(']') && !next.starts_with(['[', '-', '|']);
        let value = words.get(at).filter(takes_value).map(|next| bare(next));
        at += usize::from(value.is_some());
        entry.add(Opt { flag, value, text: String::new() });
    }
}

/// `  -Q 0|1        what it does`
fn described_option(line: &str) -> Option<Opt> {
    let (given, text) = line.trim_start().split_once("  ")?;
    let (flag, value) = match given.split_once(' ') {
        Some((flag, value)) => (flag, Some(value.to_owned())),
        None => (given, None),
    };
    flag.starts_with('-').then(|| Opt { flag: flag.to_owned(), value, text: text.trim().to_owned() })
}

/// The options of a help text that has one on each line, `--dump, -d   what it does` or `-s, --long <VALUE>   …`: each flag by itself.
/// A line that begins otherwise goes on with the text of the one before.
#[must_use]
pub fn listed(text: &str) -> Vec<Opt> {
    let mut options = Vec::new();
    for line in text.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        let (given, what) = line.split_once("  ").unwrap_or((line, ""));
        let words: Vec<&str> = given.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
        let value = words.iter().find(|word| !word.starts_with('-')).map(|value| (*value).to_owned());
        for flag in words.iter().filter(|word| word.starts_with('-')) {
            options.push(Opt {
                flag: (*flag).to_owned(),
                value: value.clone(),
                text: what.trim().to_owned(),
            });
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Usage:
sanlock <command> <action> ...

commands:
  daemon        start it
  client        ask it

sanlock daemon [options]
  -D            stay
  -Q 0|1        be quiet (1)

sanlock client read -s LOCKSPACE | -r RESOURCE [-h 0|1] [-D] [--json]
sanlock client init -s LOCKSPACE [-Z 512|4096 -A 1M|2M]
sanlock client init -r RESOURCE [-n <num>] [-Z 512|4096 -A 1M|2M]
sanlock direct dump <path>[:<offset>] [-f 1|2]
sanlock demo [--dir <dir>] [--quick]

LOCKSPACE = <name>
";

    #[test]
    fn commands_actions_and_what_they_take() {
        let entries = sanlock(TEXT);
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["daemon", "client", "client read", "client init", "direct dump", "demo"]);
        let options = |at: usize| -> Vec<(&str, Option<&str>)> {
            let entry: &Entry = &entries[at];
            entry.options.iter().map(|option| (option.flag.as_str(), option.value.as_deref())).collect()
        };
        assert_eq!(options(0), [("-D", None), ("-Q", Some("0|1"))]);
        assert_eq!(entries[0].options[1].text, "be quiet (1)");
        assert_eq!(
            options(2),
            [
                ("-s", Some("LOCKSPACE")),
                ("-r", Some("RESOURCE")),
                ("-h", Some("0|1")),
                ("-D", None),
                ("--json", None)
            ]
        );
        let flags: Vec<&str> = options(3).iter().map(|(flag, _)| *flag).collect();
        assert_eq!(flags, ["-s", "-Z", "-A", "-r", "-n"]);
        assert_eq!(entries[4].operands, ["<path>[:<offset>]"]);
        assert_eq!(options(5), [("--dir", Some("<dir>")), ("--quick", None)]);
    }

    #[test]
    fn listed_options() {
        let text = "Usage: x\n\n--dump, -d    print\n-k <num>      kill\n              later\n-w /dev/x     device\n";
        let found = listed(text);
        let flags: Vec<(&str, Option<&str>)> =
            found.iter().map(|option| (option.flag.as_str(), option.value.as_deref())).collect();
        assert_eq!(flags, [("--dump", None), ("-d", None), ("-k", Some("<num>")), ("-w", Some("/dev/x"))]);
    }

    #[test]
    fn words_to_choose_from() {
        assert_eq!(choices("512|4096"), ["512", "4096"]);
        for value in ["<pid>", "RESOURCE", "1", "<a>|<b>", "x:y|z"] {
            assert_eq!(choices(value), [""; 0], "{value}");
        }
    }
}

//! Manual pages in mdoc as data: the items of their lists, as far as tests ask for them.
//!
//! An item begins with `.It`, or with `.It Xo` and goes on to `.Xc`. `Ic` names a command or key, `Fl` an option, `Pq` what stands
//! in parentheses.

use std::collections::BTreeSet;

/// Macros that end the arguments of the one before.
const MACROS: [&str; 16] =
    ["Ar", "Cm", "Em", "Ev", "Fl", "Ic", "Li", "No", "Ns", "Op", "Pa", "Pf", "Pq", "Ta", "Xc", "Xo"];

/// An item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Item {
    /// The section it stands in (`.Sh`).
    pub section: String,
    /// What follows the first `Ic`, empty without.
    pub name: String,
    /// What follows each `Fl`, with its dashes, in order.
    pub flags: Vec<String>,
    /// What follows `Pq`.
    pub parenthesis: Option<String>,
    /// The first line of its text, if that is plain text.
    pub summary: String,
}

impl Item {
    /// The flags, each once.
    #[must_use]
    pub fn flag_set(&self) -> BTreeSet<String> {
        self.flags.iter().cloned().collect()
    }
}

/// The items of all lists of a page, in order.
#[must_use]
pub fn items(page: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut section = String::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix(".Sh ") {
            section = name.to_owned();
        }
        let Some(head) = line.strip_prefix(".It") else { continue };
        let mut words: Vec<&str> = head.split_whitespace().collect();
        if words.first() == Some(&"Xo") {
            for line in lines.by_ref().take_while(|line| !line.starts_with(".Xc")) {
                words.extend(line.trim_start_matches('.').split_whitespace());
            }
        }
        let summary = lines.peek().filter(|line| !line.starts_with('.')).map_or("", |line| line);
        items.push(item(&section, &words, summary));
    }
    items
}

fn item(section: &str, words: &[&str], summary: &str) -> Item {
    let mut item =
        Item { section: section.to_owned(), summary: summary.replace("\\-", "-"), ..Item::default() };
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        at += 1;
        let arguments: Vec<&str> =
            words[at..].iter().take_while(|word| !MACROS.contains(word)).copied().collect();
        match word {
            "Ic" if item.name.is_empty() => item.name = arguments.join(" "),
            "Fl" => {
                let flags = arguments.iter().filter(|word| !matches!(**word, "," | "|" | ":"));
                item.flags.extend(flags.map(|flag| format!("-{flag}")));
            }
            "Pq" => item.parenthesis = Some(arguments.join(" ")),
            _ => {}
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_names_flags_and_a_first_sentence() {
        let page = "\
.Sh ACTIONS
.Bl -tag -width Ds
.It Xo
.Ic client gets
.Op Fl h Cm 0 | 1
.Op Fl -json
.Xc
Lists the lockspaces \\-1.
.It Ic client read Fl s Ar LOCKSPACE | Fl r Ar RESOURCE
.Nm
.It Fl V , Fl -version
Print it.
.Sh KEYS
.It Ic quiet_fail Pq 1
Be quiet.
";
        let found = items(page);
        let item = |section: &str, name: &str, flags: &[&str], summary: &str| Item {
            section: section.to_owned(),
            name: name.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            parenthesis: None,
            summary: summary.to_owned(),
        };
        assert_eq!(
            found,
            [
                item("ACTIONS", "client gets", &["-h", "--json"], "Lists the lockspaces -1."),
                item("ACTIONS", "client read", &["-s", "-r"], ""),
                item("ACTIONS", "", &["-V", "--version"], "Print it."),
                Item { parenthesis: Some("1".to_owned()), ..item("KEYS", "quiet_fail", &[], "Be quiet.") },
            ]
        );
    }
}

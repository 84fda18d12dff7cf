//! Shell completions, made from the help text: whatever a command takes is offered, as soon as it is in there.
//!
//! The option grammar of `sanlock` is its own (single letters, each with a separate value, an action word that may stand without
//! `client`), so no command-line library's generator can write these.

use crate::help::{Entry, Opt, choices};
use crate::repository;
use std::fmt::Write as _;

/// What a value is completed with.
enum Value<'a> {
    /// One of these words.
    Words(Vec<&'a str>),
    /// A path, or a name that ends in one after a colon.
    Path,
    /// A process id.
    Pid,
    User,
    Group,
    /// Nothing to go by.
    Unknown,
}

impl<'a> Value<'a> {
    fn of(value: &'a str) -> Self {
        let words = choices(value);
        if !words.is_empty() {
            return Self::Words(words);
        }
        match value {
            "<pid>" => Self::Pid,
            "<user>" => Self::User,
            "<group>" => Self::Group,
            "<path>" | "<file>" | "<dir>" | "<dev>" | "<place>" => Self::Path,
            _ if value.starts_with('/') => Self::Path,
            // The path in these is completed once its colon is there.
            _ if ["LOCKSPACE", "RESOURCE", "RINDEX"].iter().any(|name| value.starts_with(name)) => Self::Path,
            _ => Self::Unknown,
        }
    }

    fn of_operand(operand: &'a str) -> Self {
        // A place begins with a path, and a lease may be given by its place.
        let begins_with_path = ["path", "PATH", "place", "lease"].iter().any(|word| operand.contains(word));
        if begins_with_path { Self::Path } else { Self::Unknown }
    }
}

/// A program to complete.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Its name.
    pub name: &'a str,
    /// Commands and actions; one entry without a name for a program that has options only.
    pub entries: &'a [Entry],
    /// The command whose name may be left out before its actions.
    pub default: &'a str,
    /// How the files are made, for their first line.
    pub made_by: &'a str,
}

impl<'a> Program<'a> {
    /// Holds the files in `completions/` against the texts made now; with `UPDATE_COMPLETIONS` set it writes them first.
    ///
    /// # Panics
    ///
    /// When a file differs, or cannot be written.
    pub fn assert_written(&self) {
        let name = self.name;
        for (file, text) in [
            (format!("{name}.bash"), self.bash()),
            (format!("_{name}"), self.zsh()),
            (format!("{name}.fish"), self.fish()),
        ] {
            let path = repository(&format!("completions/{file}"));
            if std::env::var_os("UPDATE_COMPLETIONS").is_some() {
                std::fs::write(&path, &text).unwrap_or_else(|error| panic!("completions/{file}: {error}"));
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                written == text,
                "completions/{file} is out of date: run this test with UPDATE_COMPLETIONS=1"
            );
        }
    }

    /// Commands: entries of one word.
    fn commands(&self) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(|entry| !entry.name.is_empty() && !entry.name.contains(' '))
    }

    fn actions(&self, command: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        self.entries.iter().filter_map(move |entry| {
            let (first, action) = entry.name.split_once(' ')?;
            (first == command).then_some((action, entry))
        })
    }

    /// Commands that have actions.
    fn with_actions(&self) -> Vec<&'a str> {
        let names = self.commands().map(|entry| entry.name.as_str());
        names.filter(|name| self.actions(name).next().is_some()).collect()
    }

    /// What the first argument may be.
    fn first_words(&self) -> Vec<(&'a str, &'a str)> {
        let commands = self.commands().map(|entry| (entry.name.as_str(), entry.text.as_str()));
        let actions = self.actions(self.default).map(|(action, entry)| (action, entry.text.as_str()));
        let mut words: Vec<(&str, &str)> = commands.collect();
        for (word, text) in actions {
            if !words.iter().any(|(known, _)| *known == word) {
                words.push((word, text));
            }
        }
        words
    }

    /// bash: a function and its registration.
    #[must_use]
    pub fn bash(&self) -> String {
        let Self { name, made_by, .. } = self;
        let mut text = format!("# bash completion for {name}. {made_by}\n\n_{name}()\n{{\n");
        text.push_str(
            "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at=1 where= words= i\n    COMPREPLY=()\n",
        );
        if self.commands().next().is_some() {
            let words: Vec<&str> = self.first_words().iter().map(|(word, _)| *word).collect();
            let _ = write!(
                text,
                "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '{}' -- \"$cur\"))\n        return\n    fi\n    \
                 where=${{COMP_WORDS[1]}} at=2\n    case $where in\n",
                words.join(" ")
            );
            for command in self.with_actions() {
                let actions: Vec<&str> = self.actions(command).map(|(action, _)| action).collect();
                let _ = write!(
                    text,
                    "    {command})\n        if ((COMP_CWORD == 2)); then\n            \
                     COMPREPLY=($(compgen -W '{}' -- \"$cur\"))\n            return\n        fi\n        \
                     where=\"{command} ${{COMP_WORDS[2]}}\" at=3\n        ;;\n",
                    actions.join(" ")
                );
            }
            let plain: Vec<&str> = self
                .commands()
                .map(|entry| entry.name.as_str())
                .filter(|name| self.actions(name).next().is_none())
                .collect();
            let _ = write!(
                text,
                "    {}) ;;\n    *) where=\"{} $where\" ;;\n    esac\n",
                plain.join("|"),
                self.default
            );
        }
        text.push_str(
            "    # Names and places are joined by colons, at which the shell splits words.\n    \
             if [[ $prev == : || $cur == : ]]; then\n        COMPREPLY=($(compgen -f -- \"${cur#:}\"))\n        return\n    fi\n",
        );
        text.push_str("    case \"$where $prev\" in\n");
        for entry in self.entries {
            for option in &entry.options {
                let Some(value) = &option.value else { continue };
                let pattern = format!("'{} {}'", entry.name, option.flag);
                let reply = match Value::of(value) {
                    Value::Words(words) => format!("-W '{}'", words.join(" ")),
                    Value::Path => "-f".to_owned(),
                    Value::Pid => "-W \"$(ps -eo pid= 2>/dev/null)\"".to_owned(),
                    Value::User => "-u".to_owned(),
                    Value::Group => "-g".to_owned(),
                    Value::Unknown => {
                        let _ = writeln!(text, "    {pattern}) return ;;");
                        continue;
                    }
                };
                let _ =
                    writeln!(text, "    {pattern}) COMPREPLY=($(compgen {reply} -- \"$cur\")); return ;;");
            }
        }
        text.push_str("    esac\n    case $where in\n");
        for entry in self.entries {
            let flags: Vec<&str> = entry.options.iter().map(|option| option.flag.as_str()).collect();
            let files = entry.operands.iter().any(|o| matches!(Value::of_operand(o), Value::Path));
            let _ = writeln!(
                text,
                "    '{}') words='{}'{} ;;",
                entry.name,
                flags.join(" "),
                if files { "; [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- \"$cur\"))" } else { "" }
            );
        }
        text.push_str("    esac\n");
        text.push_str(
            "    # What follows -c is another command's.\n    for ((i = at; i < COMP_CWORD; i++)); do\n        \
             if [[ ${COMP_WORDS[i]} == -c && \" $words \" == *' -c '* ]]; then\n            \
             COMPREPLY=($(compgen -f -- \"$cur\"))\n            return\n        fi\n    done\n",
        );
        let _ = write!(
            text,
            "    COMPREPLY+=($(compgen -W \"$words\" -- \"$cur\"))\n}}\n\ncomplete -o filenames -F _{name} {name}\n"
        );
        text
    }

    /// zsh: a file for its `fpath`.
    #[must_use]
    pub fn zsh(&self) -> String {
        let Self { name, made_by, .. } = self;
        let mut text = format!("#compdef {name}\n# zsh completion for {name}. {made_by}\n\n");
        if self.commands().next().is_none() {
            text.push_str("_arguments -s");
            for entry in self.entries {
                zsh_arguments(&mut text, entry, "    ");
            }
            text.push('\n');
            return text;
        }
        let _ = write!(text, "_{name}() {{\n    local where=$words[2] at=2\n    local -a words_here\n");
        let describe = |text: &mut String, indent: &str, what: &str, words: &[(&str, &str)]| {
            let _ = writeln!(text, "{indent}words_here=(");
            for (word, about) in words {
                let _ = writeln!(text, "{indent}    '{}:{}'", word, quoted(about));
            }
            let _ = writeln!(text, "{indent})\n{indent}_describe -t {what} {what} words_here");
        };
        text.push_str("    if (( CURRENT == 2 )); then\n");
        describe(&mut text, "        ", "command", &self.first_words());
        text.push_str("        return\n    fi\n    case $where in\n");
        for command in self.with_actions() {
            let _ = write!(text, "    {command})\n        if (( CURRENT == 3 )); then\n");
            let words: Vec<(&str, &str)> =
                self.actions(command).map(|(action, entry)| (action, entry.text.as_str())).collect();
            describe(&mut text, "            ", "action", &words);
            let _ = write!(
                text,
                "            return\n        fi\n        where=\"{command} $words[3]\" at=3\n        ;;\n"
            );
        }
        let plain: Vec<&str> = self
            .commands()
            .map(|entry| entry.name.as_str())
            .filter(|name| self.actions(name).next().is_none())
            .collect();
        let _ = write!(text, "    {}) ;;\n    *) where=\"{} $where\" ;;\n", plain.join("|"), self.default);
        text.push_str(
            "    esac\n    shift $((at - 1)) words\n    (( CURRENT -= at - 1 ))\n    case $where in\n",
        );
        for entry in self.entries {
            if entry.options.is_empty() && entry.operands.is_empty() {
                continue;
            }
            let _ = write!(text, "    '{}') _arguments", entry.name);
            zsh_arguments(&mut text, entry, "        ");
            text.push_str(" ;;\n");
        }
        let _ = write!(text, "    esac\n}}\n\n_{name} \"$@\"\n");
        text
    }

    /// fish: a list of `complete` commands.
    #[must_use]
    pub fn fish(&self) -> String {
        let Self { name, made_by, .. } = self;
        let mut text = format!("# fish completion for {name}. {made_by}\n\ncomplete -c {name} -f\n");
        let line = |text: &mut String, condition: &str, what: &str, about: &str| {
            let _ = write!(text, "complete -c {name}");
            if !condition.is_empty() {
                let _ = write!(text, " -n \"__{name}_at '{condition}'\"");
            }
            let _ = write!(text, " {what}");
            if !about.is_empty() {
                let _ = write!(text, " -d '{}'", about.replace('\\', "\\\\").replace('\'', "\\'"));
            }
            text.push('\n');
        };
        if self.commands().next().is_some() {
            let with_actions = self.with_actions();
            let plain: Vec<&str> = self
                .commands()
                .map(|entry| entry.name.as_str())
                .filter(|name| !with_actions.contains(name))
                .collect();
            let _ = write!(
                text,
                "\n# Whether the words so far lead to this command or action.\nfunction __{name}_at\n    \
                 set -l words (commandline -opc)\n    set -e words[1]\n    set -l where\n    \
                 if set -q words[1]\n        switch $words[1]\n            case {}\n                \
                 set where $words[1]\n                set -q words[2]; and set where \"$words[1] $words[2]\"\n            \
                 case {}\n                set where $words[1]\n            case '*'\n                \
                 set where \"{} $words[1]\"\n        end\n    end\n    test \"$where\" = \"$argv[1]\"\nend\n\n",
                with_actions.join(" "),
                plain.join(" "),
                self.default
            );
            for (word, about) in self.first_words() {
                let _ = write!(text, "complete -c {name} -n \"__{name}_at ''\"");
                let _ =
                    writeln!(text, " -a {word} -d '{}'", about.replace('\\', "\\\\").replace('\'', "\\'"));
            }
            for command in with_actions {
                for (action, entry) in self.actions(command) {
                    line(&mut text, command, &format!("-a {action}"), &entry.text);
                }
            }
        }
        for entry in self.entries {
            for Opt { flag, value, text: about } in &entry.options {
                let given = match (flag.strip_prefix("--"), flag.strip_prefix('-')) {
                    (Some(long), _) => format!("-l {long}"),
                    (None, Some(letter)) => format!("-s {letter}"),
                    (None, None) => continue,
                };
                let with = match value.as_deref().map(Value::of) {
                    None => String::new(),
                    Some(Value::Words(words)) => format!(" -x -a '{}'", words.join(" ")),
                    Some(Value::Path) => " -r -F".to_owned(),
                    Some(Value::Pid) => " -x -a '(__fish_complete_pids)'".to_owned(),
                    Some(Value::User) => " -x -a '(__fish_complete_users)'".to_owned(),
                    Some(Value::Group) => " -x -a '(__fish_complete_groups)'".to_owned(),
                    Some(Value::Unknown) => " -x".to_owned(),
                };
                line(&mut text, &entry.name, &format!("{given}{with}"), about);
            }
            if entry.operands.iter().any(|operand| matches!(Value::of_operand(operand), Value::Path)) {
                line(&mut text, &entry.name, "-F", "");
            }
        }
        text
    }
}

/// In single quotes, before or after a colon or within brackets.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''").replace(':', "\\:").replace('[', "\\[").replace(']', "\\]")
}

fn zsh_arguments(text: &mut String, entry: &Entry, indent: &str) {
    for Opt { flag, value, text: about } in &entry.options {
        let action = match value.as_deref().map(Value::of) {
            None => String::new(),
            Some(Value::Words(words)) => format!(":value:({})", words.join(" ")),
            Some(Value::Path) => ":path:_files".to_owned(),
            Some(Value::Pid) => ":process:_pids".to_owned(),
            Some(Value::User) => ":user:_users".to_owned(),
            Some(Value::Group) => ":group:_groups".to_owned(),
            Some(Value::Unknown) => ":value: ".to_owned(),
        };
        // Resources may be given several times.
        let often = if flag == "-r" { "*" } else { "" };
        let about = if about.is_empty() { String::new() } else { format!("[{}]", quoted(about)) };
        let _ = write!(text, " \\\n{indent}'{often}{flag}{about}{action}'");
    }
    if entry.operands.iter().any(|operand| matches!(Value::of_operand(operand), Value::Path)) {
        let several = if entry.operands.iter().any(|operand| operand == "...") { "*" } else { "" };
        let _ = write!(text, " \\\n{indent}'{several}:path:_files'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_completed_by_what_they_are() {
        assert!(matches!(Value::of("0|1"), Value::Words(words) if words == ["0", "1"]));
        assert!(matches!(Value::of("<pid>"), Value::Pid));
        assert!(matches!(Value::of("RESOURCE:<lver>"), Value::Path));
        assert!(matches!(Value::of("<file>"), Value::Path));
        assert!(matches!(Value::of("/dev/watchdog"), Value::Path));
        assert!(matches!(Value::of("<sec>"), Value::Unknown));
        assert!(matches!(Value::of("RENTRY"), Value::Unknown));
        assert!(matches!(Value::of("<place>"), Value::Path));
        for operand in ["<path>[:<offset>]", "[<place>]", "<lease>"] {
            assert!(matches!(Value::of_operand(operand), Value::Path), "{operand}");
        }
        assert!(matches!(Value::of_operand("<result>"), Value::Unknown));
    }

    #[test]
    fn quotes_brackets_and_colons_do_not_end_a_description() {
        assert_eq!(quoted("host's: [a]"), "host'\\''s\\: \\[a\\]");
    }
}

//! The option grammar of sanlock 3.8.5 (command-line.md 3.1).
//!
//! Every option is its own argument of exactly two bytes, and every option but `-D` takes the next argument as its value,
//! whatever that looks like. Options cannot be combined, and a value cannot be attached: `-op` is refused, as 3.8.5 refuses it.
//! (5.1.1 accepts it. Accepting both would make `-Dw 1` mean something that neither version does, and a script that must run
//! everywhere cannot use it anyway.) `-c` takes the rest of the line.

use super::UsageError;

/// Letters that take a value, for any action; each action uses the ones it knows and ignores the others.
const WITH_VALUE: &[u8] = b"aAbdefFgGhHilLmnoOpPQrRsStuUwxzZ";
/// The option without a value.
const DEBUG: u8 = b'D';
/// The option that ends the options.
const COMMAND: u8 = b'c';

/// Where the options stand.
const HELP: &str = "'sanlock help' lists them";

/// Options that 3.8.5 does not have, with names that it could never take for one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Long {
    /// `--json`: print an object in place of text.
    Json,
    /// `--plot FILE`: draw a picture in place of text.
    Plot,
    /// `--progress`: say what is waited for, also where there is no terminal.
    Progress,
}

impl Long {
    fn spelling(self) -> &'static [u8] {
        match self {
            Self::Json => b"--json",
            Self::Plot => b"--plot",
            Self::Progress => b"--progress",
        }
    }

    fn takes_value(self) -> bool {
        matches!(self, Self::Plot)
    }
}

/// One option as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// `-D`
    Debug,
    /// One of the options with long names, and the next argument where it takes one.
    Long {
        /// Which.
        option: Long,
        /// Empty where it takes none.
        value: &'a [u8],
    },
    /// A letter and its value.
    Value {
        /// One of [`WITH_VALUE`].
        letter: u8,
        /// The next argument.
        value: &'a [u8],
    },
    /// `-c` and everything after it, at least one argument.
    Command(&'a [Vec<u8>]),
}

/// Splits arguments into options, in order. `long`: those with long names that the action knows.
///
/// # Errors
/// The message of 3.8.5 for an argument that is no option, a missing value or an unknown letter.
pub(crate) fn tokenize<'a>(args: &'a [Vec<u8>], long: &[Long]) -> Result<Vec<Token<'a>>, UsageError> {
    let mut tokens = Vec::new();
    let mut rest = args;
    while let Some((arg, after)) = rest.split_first() {
        if let Some(&option) = long.iter().find(|option| option.spelling() == arg) {
            let mut value: &[u8] = &[];
            rest = after;
            if option.takes_value() {
                let Some((next, after_value)) = after.split_first() else {
                    return Err(UsageError::explain(&format!(
                        "{} needs a value as its next argument; {HELP}",
                        String::from_utf8_lossy(arg)
                    )));
                };
                (value, rest) = (next, after_value);
            }
            tokens.push(Token::Long { option, value });
            continue;
        }
        let &[b'-', letter] = arg.as_slice() else {
            let mut text = b"unknown option ".to_vec();
            text.extend_from_slice(arg);
            text.extend_from_slice(b"\nspace required before option value\n");
            let arg = String::from_utf8_lossy(arg);
            return Err(UsageError::like_original(text).and_explain(&format!(
                "{arg:?} is no option: an option is a dash and one letter, its value the next argument; {HELP}"
            )));
        };
        if letter == DEBUG {
            tokens.push(Token::Debug);
            rest = after;
            continue;
        }
        let Some((value, after_value)) = after.split_first() else {
            return Err(UsageError::like_original(message(b"option '", letter, b"' requires arg\n"))
                .and_explain(&format!(
                    "-{} needs a value as its next argument; {HELP}",
                    char::from(letter)
                )));
        };
        if letter == COMMAND {
            tokens.push(Token::Command(after));
            break;
        }
        if !WITH_VALUE.contains(&letter) {
            return Err(UsageError::like_original(message(b"unknown option: ", letter, b"\n"))
                .and_explain(&format!("there is no option -{}; {HELP}", char::from(letter))));
        }
        tokens.push(Token::Value { letter, value });
        rest = after_value;
    }
    Ok(tokens)
}

fn message(before: &[u8], letter: u8, after: &[u8]) -> Vec<u8> {
    [before, &[letter], after].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Vec<Vec<u8>> {
        list.iter().map(|a| a.as_bytes().to_vec()).collect()
    }

    #[test]
    fn what_3_8_5_refuses() {
        let space = "\nspace required before option value\n";
        for (list, stdout) in [
            (&["foo"][..], format!("unknown option foo{space}")),
            (&["-op"], format!("unknown option -op{space}")),
            (&["--debug"], format!("unknown option --debug{space}")),
            (&["-"], format!("unknown option -{space}")),
            (&[""], format!("unknown option {space}")),
            (&["-Dw", "1"], format!("unknown option -Dw{space}")),
            (&["-w0"], format!("unknown option -w0{space}")),
            (&["-w", "0", "x"], format!("unknown option x{space}")),
            (&["-o"], "option 'o' requires arg\n".to_owned()),
            (&["-q"], "option 'q' requires arg\n".to_owned()),
            (&["--"], "option '-' requires arg\n".to_owned()),
            (&["-c"], "option 'c' requires arg\n".to_owned()),
            (&["-q", "1"], "unknown option: q\n".to_owned()),
            (&["--", "1"], "unknown option: -\n".to_owned()),
            (&["-C", "1"], "unknown option: C\n".to_owned()),
            (&["-N", "1"], "unknown option: N\n".to_owned()),
        ] {
            let error = tokenize(&args(list), &[]).unwrap_err();
            assert_eq!(String::from_utf8_lossy(&error.stdout), stdout, "{list:?}");
            let stderr = String::from_utf8(error.stderr).unwrap();
            assert!(
                stderr.starts_with("sanlock: ") && stderr.ends_with("'sanlock help' lists them\n"),
                "{stderr}"
            );
        }
    }

    #[test]
    fn what_3_8_5_accepts() {
        let list = args(&["-D", "-o", "p", "-D", "-r", "-x", "-w", "-w", "-c", "/bin/sh", "-c", "exit"]);
        assert_eq!(
            tokenize(&list, &[]).unwrap(),
            [
                Token::Debug,
                Token::Value { letter: b'o', value: b"p" },
                Token::Debug,
                Token::Value { letter: b'r', value: b"-x" },
                Token::Value { letter: b'w', value: b"-w" },
                Token::Command(&list[9..]),
            ]
        );
        assert_eq!(tokenize(&[], &[]).unwrap(), []);
    }

    #[test]
    fn long_options_are_some_only_where_they_are_known() {
        let list = args(&["-D", "--json", "-o", "--json"]);
        let value = Token::Value { letter: b'o', value: b"--json" };
        let json = Token::Long { option: Long::Json, value: b"" };
        assert_eq!(tokenize(&list, &[Long::Json]).unwrap(), [Token::Debug, json, value]);
        let list = args(&["--json", "--plot", "--json", "-D"]);
        let plot = Token::Long { option: Long::Plot, value: b"--json" };
        assert_eq!(tokenize(&list, &[Long::Json, Long::Plot]).unwrap(), [json, plot, Token::Debug]);
        let missing = tokenize(&args(&["--plot"]), &[Long::Plot]).unwrap_err();
        assert!(String::from_utf8(missing.stderr).unwrap().contains("--plot needs a value"));
        let list = args(&["--json"]);
        let refused = tokenize(&list, &[]).unwrap_err().stdout;
        assert_eq!(refused, b"unknown option --json\nspace required before option value\n");
        assert!(tokenize(&args(&["--jso"]), &[Long::Json]).is_err());
    }

    #[test]
    fn the_letters_of_3_8_5() {
        for letter in b' '..=b'~' {
            let list = [vec![b'-', letter], b"1".to_vec()];
            let known = b"abcdefghilmnoprstuwxzAFGHLOPQRSUZ".contains(&letter);
            let accepted = match tokenize(&list, &[]) {
                Ok(tokens) => tokens.len() == 1,
                Err(_) => false,
            };
            assert_eq!(accepted, known, "{}", char::from(letter));
        }
    }
}

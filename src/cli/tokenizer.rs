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

/// What prints JSON in place of text; the only long option, and none to an action that has no JSON.
const JSON: &[u8] = b"--json";

/// One option as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// `-D`
    Debug,
    /// `--json`
    Json,
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

/// Splits arguments into options, in order. `json`: whether the action knows `--json`, which 3.8.5 has nowhere.
///
/// # Errors
/// The message of 3.8.5 for an argument that is no option, a missing value or an unknown letter.
pub(crate) fn tokenize(args: &[Vec<u8>], json: bool) -> Result<Vec<Token<'_>>, UsageError> {
    let mut tokens = Vec::new();
    let mut rest = args;
    while let Some((arg, after)) = rest.split_first() {
        if json && arg == JSON {
            tokens.push(Token::Json);
            rest = after;
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
            let error = tokenize(&args(list), false).unwrap_err();
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
            tokenize(&list, false).unwrap(),
            [
                Token::Debug,
                Token::Value { letter: b'o', value: b"p" },
                Token::Debug,
                Token::Value { letter: b'r', value: b"-x" },
                Token::Value { letter: b'w', value: b"-w" },
                Token::Command(&list[9..]),
            ]
        );
        assert_eq!(tokenize(&[], false).unwrap(), []);
    }

    #[test]
    fn json_is_an_option_only_where_there_is_some() {
        let list = args(&["-D", "--json", "-o", "--json"]);
        let value = Token::Value { letter: b'o', value: b"--json" };
        assert_eq!(tokenize(&list, true).unwrap(), [Token::Debug, Token::Json, value]);
        let refused = tokenize(&list, false).unwrap_err().stdout;
        assert_eq!(refused, b"unknown option --json\nspace required before option value\n");
        assert!(tokenize(&args(&["--jso"]), true).is_err());
    }

    #[test]
    fn the_letters_of_3_8_5() {
        for letter in b' '..=b'~' {
            let list = [vec![b'-', letter], b"1".to_vec()];
            let known = b"abcdefghilmnoprstuwxzAFGHLOPQRSUZ".contains(&letter);
            let accepted = match tokenize(&list, false) {
                Ok(tokens) => tokens.len() == 1,
                Err(_) => false,
            };
            assert_eq!(accepted, known, "{}", char::from(letter));
        }
    }
}

//! The killpath program of a client: which one, and with which arguments (socket-protocol.md 7.16, 10).

use crate::ids::ConnId;
use crate::{Action, Manager, Target, reply};
use sanlock_lease::code::ReturnCode;

/// Words of a killpath's command line, its path among them; the pid comes on top if there is room.
const WORDS_MAX: usize = 8;

/// What KILLPATH carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillpathProgram {
    /// The program.
    pub path: Vec<u8>,
    /// Its arguments, not yet split.
    pub arguments: Vec<u8>,
}

/// The command line. Arguments are separated by white space; a backslash takes a following white space or backslash literally, and
/// before anything else ends the arguments, as does a byte outside ASCII's printing characters and white space. Quotes are ordinary.
pub(crate) fn words(program: &KillpathProgram, pid: Option<i32>) -> Vec<Vec<u8>> {
    let mut words = vec![program.path.clone()];
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = program.arguments.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if words.len() >= WORDS_MAX {
            break;
        }
        let white = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b;
        match byte {
            b'\\' => match bytes.next_if(|next| *next == b'\\' || white(*next)) {
                Some(next) => word.get_or_insert_default().push(next),
                None => break,
            },
            byte if white(byte) => words.extend(word.take()),
            byte if byte.is_ascii_graphic() => word.get_or_insert_default().push(byte),
            _ => break,
        }
    }
    words.extend(word.filter(|_| words.len() < WORDS_MAX));
    if let Some(pid) = pid.filter(|_| words.len() < WORDS_MAX) {
        words.push(pid.to_string().into_bytes());
    }
    words
}

impl Manager {
    /// KILLPATH: replaces the program. The wish for the pid stays once it was made.
    pub(crate) fn set_killpath(
        &mut self,
        conn: ConnId,
        program: KillpathProgram,
        pid: bool,
        out: &mut Vec<Action>,
    ) {
        let target = match self.find_target(conn, Target::Own, false) {
            Ok(target) => target,
            Err(e) => return reply(out, conn, e.0),
        };
        if let Some(client) = self.conns.get_mut(&target) {
            client.killpath = (!program.path.is_empty()).then_some(program);
            client.killpath_pid |= pid;
        }
        reply(out, conn, ReturnCode(0).0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(arguments: &str, pid: Option<i32>) -> Vec<String> {
        let program = KillpathProgram { path: b"/bin/p".to_vec(), arguments: arguments.as_bytes().to_vec() };
        words(&program, pid).into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn arguments_are_split_as_the_original_does() {
        for (arguments, expected) in [
            ("", vec![]),
            ("  \t ", vec![]),
            ("a", vec!["a"]),
            (" a  b\tc\n", vec!["a", "b", "c"]),
            (r#"a "b c" d\ e f\\g h"#, vec!["a", "\"b", "c\"", "d e", "f\\g", "h"]),
            (r"a b\x c", vec!["a", "b"]),
            ("a b\\", vec!["a", "b"]),
            ("a b\u{e9} c", vec!["a", "b"]),
            ("a b\x01c", vec!["a", "b"]),
            (r"\ ", vec![" "]),
            ("1 2 3 4 5 6 7 8 9", vec!["1", "2", "3", "4", "5", "6", "7"]),
        ] {
            assert_eq!(split(arguments, None)[1..], expected[..], "{arguments:?}");
        }
    }

    #[test]
    fn the_pid_comes_last_if_there_is_room() {
        assert_eq!(split("", Some(77)), ["/bin/p", "77"]);
        assert_eq!(split("a b", Some(77)), ["/bin/p", "a", "b", "77"]);
        assert_eq!(split("1 2 3 4 5 6", Some(77)).len(), 8);
        assert_eq!(split("1 2 3 4 5 6 7", Some(77)).last().unwrap(), "7");
    }
}

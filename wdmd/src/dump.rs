//! The dump: the text of the daemon's reply, and `wdmd --dump` (specification 5.5).

use crate::say;
use sanlock_wdmd::protocol::{Command, Escaped, MAX_DUMP_LEN, MESSAGE_LEN, Message, Name, SOCKET_PATH};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest line, without its end.
const LINE_BYTES: usize = 254;
/// Longest name shown.
const NAME_BYTES: usize = 64;
/// How long `--dump` waits for each part of the answer: longer than a 5.1.1 daemon waits for its scripts.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The first line's values.
pub(crate) struct Head<'a> {
    pub(crate) socket_gid: u32,
    pub(crate) high_priority: bool,
    pub(crate) now: u64,
    pub(crate) last_keepalive: u64,
    pub(crate) allow_scripts: bool,
    pub(crate) kill_script_after: u32,
    pub(crate) fire_timeout: u32,
    pub(crate) identity: &'a str,
}

/// A slot's values.
pub(crate) struct Slot<'a> {
    pub(crate) number: u32,
    pub(crate) name: &'a Name,
    pub(crate) pid: i32,
    pub(crate) fd: i32,
    pub(crate) dead: bool,
    pub(crate) refcount: bool,
    pub(crate) renewal: u64,
    pub(crate) expire: u64,
}

/// The first line. (The device is never closed uncleanly: that field is always 0.)
pub(crate) fn head(text: &mut String, head: &Head<'_>) {
    let Head { socket_gid, now, last_keepalive, kill_script_after, fire_timeout, .. } = head;
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "wdmd {} socket_gid {socket_gid} high_priority {} now {now} last_keepalive {last_keepalive} last_closeunclean 0 \
         allow_scripts {} kill_script_sec {kill_script_after} fire_timeout {fire_timeout} identity \"{}\"",
        std::process::id(),
        u8::from(head.high_priority),
        u8::from(head.allow_scripts),
        Escaped(head.identity.as_bytes()),
    );
}

/// A slot's line.
pub(crate) fn slot(text: &mut String, now: u64, slot: &Slot<'_>) {
    let Slot { number, pid, fd, renewal, expire, .. } = slot;
    let name = slot.name.as_bytes();
    let name = Escaped(name.get(..NAME_BYTES).unwrap_or(name));
    let (dead, refcount) = (u8::from(slot.dead), u8::from(slot.refcount));
    let _ = writeln!(
        text,
        "client {number} name {name} pid {pid} fd {fd} dead {dead} ref {refcount} now {now} renewal {renewal} expire {expire}"
    );
}

/// Cuts long lines, and the text where it gets too long. All of it is ASCII.
pub(crate) fn limited(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.get(..LINE_BYTES).unwrap_or(line);
        if out.len() + line.len() >= MAX_DUMP_LEN {
            break;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// `wdmd --dump`: 0, or 1 without a word if no daemon answers.
pub(crate) fn print() -> u8 {
    match ask() {
        Ok(text) => match io::stdout().write_all(&text) {
            Ok(()) => 0,
            Err(error) => {
                say::err(format_args!("wdmd: cannot print the dump: {error}"));
                1
            }
        },
        Err(error) => {
            // As the original, for scripts that look whether a daemon runs.
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
                say::err(format_args!("wdmd: no dump from the daemon at {SOCKET_PATH}: {error}"));
            }
            1
        }
    }
}

/// The text has no length and no end mark; what follows it is told from it by its first byte, 0: the reply to a STATUS sent
/// with the request.
fn ask() -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(SOCKET_PATH)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(&Message::new(Command::DumpDebug).encode())?;
    stream.write_all(&Message::new(Command::Status).encode())?;
    let mut text = Vec::new();
    let mut chunk = [0; 64 * 1024];
    while text.len() < MAX_DUMP_LEN + MESSAGE_LEN {
        let got = stream.read(&mut chunk)?;
        let part = chunk.get(..got).unwrap_or(&[]);
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            text.extend_from_slice(part.get(..end).unwrap_or(&[]));
            break;
        }
        if part.is_empty() {
            break;
        }
        text.extend_from_slice(part);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_original() {
        let mut text = String::new();
        let values = Head {
            socket_gid: 179,
            high_priority: false,
            now: 15,
            last_keepalive: 15,
            allow_scripts: false,
            kill_script_after: 0,
            fire_timeout: 30,
            identity: "i6300ESB timer",
        };
        head(&mut text, &values);
        let name = Name::new(b"dump").unwrap();
        let values = Slot {
            number: 2,
            name: &name,
            pid: 181,
            fd: 8,
            dead: false,
            refcount: false,
            renewal: 0,
            expire: 0,
        };
        slot(&mut text, 15, &values);
        let pid = std::process::id();
        assert_eq!(
            text,
            format!(
                "wdmd {pid} socket_gid 179 high_priority 0 now 15 last_keepalive 15 last_closeunclean 0 allow_scripts 0 \
                 kill_script_sec 0 fire_timeout 30 identity \"i6300ESB timer\"\n\
                 client 2 name dump pid 181 fd 8 dead 0 ref 0 now 15 renewal 0 expire 0\n"
            )
        );
    }

    #[test]
    fn names_lines_and_the_whole_are_cut() {
        let mut text = String::new();
        let name = Name::new(&[1; 128]).unwrap();
        let values = Slot {
            number: 2,
            name: &name,
            pid: 0,
            fd: -1,
            dead: true,
            refcount: true,
            renewal: 1,
            expire: 2,
        };
        for _ in 0..6000 {
            slot(&mut text, 15, &values);
        }
        let limited = limited(&text);
        assert!(limited.len() <= MAX_DUMP_LEN && limited.len() > MAX_DUMP_LEN - 300);
        assert!(limited.lines().all(|line| line.len() == LINE_BYTES));
    }
}

//! What daemon and helper tell each other: one message of the socket each, a tag, numbers, words that end in NUL.

/// Bytes of the longest message: nine words, one of them a path of 1024 bytes, and some reserve.
pub(super) const MESSAGE_BYTES_MAX: usize = 8192;

/// To the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Orders wait: fetch them.
    Bell,
    /// Send this signal to the process whose descriptor comes with it, before this time.
    Signal {
        /// Number.
        signal: u8,
        /// Milliseconds of the clock of leases, which goes on while the machine sleeps.
        until: u64,
    },
    /// Run a program, if it can be begun before this time, and if the process whose descriptor comes with it, if one does, lives.
    Run {
        /// To be named in the reports.
        id: u64,
        /// Milliseconds of the clock of leases, which goes on while the machine sleeps.
        until: u64,
        /// The command line.
        words: Vec<Vec<u8>>,
    },
    /// No more orders wait.
    Nothing,
}

/// From the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// A helper has begun to work; its descriptor comes with it.
    Hello {
        /// Its pid.
        pid: i32,
    },
    /// It is ready for the next order.
    Fetch,
    /// A program was started.
    Started {
        /// Of which order.
        id: u64,
        /// Its pid.
        pid: i32,
    },
    /// A program was not, or could not be, started.
    Refused {
        /// Of which order.
        id: u64,
        /// Why.
        errno: i32,
    },
    /// A program has ended.
    Ended {
        /// Of which order.
        id: u64,
        /// Exit status, or minus the number of the signal that ended it.
        status: i32,
    },
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk::<N>()?;
    *bytes = tail;
    Some(*head)
}

impl Order {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Bell => vec![b'B'],
            Self::Signal { signal, until } => {
                let mut bytes = vec![b'S', *signal];
                bytes.extend_from_slice(&until.to_le_bytes());
                bytes
            }
            Self::Run { id, until, words } => {
                let mut bytes = vec![b'R'];
                bytes.extend_from_slice(&id.to_le_bytes());
                bytes.extend_from_slice(&until.to_le_bytes());
                for word in words {
                    bytes.extend_from_slice(word);
                    bytes.push(0);
                }
                bytes
            }
            Self::Nothing => vec![b'N'],
        }
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let [tag] = take(&mut bytes)?;
        Some(match tag {
            b'B' => Self::Bell,
            b'S' => {
                let [signal] = take(&mut bytes)?;
                Self::Signal { signal, until: u64::from_le_bytes(take(&mut bytes)?) }
            }
            b'R' => {
                let id = u64::from_le_bytes(take(&mut bytes)?);
                let until = u64::from_le_bytes(take(&mut bytes)?);
                let words = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
                Self::Run { id, until, words }
            }
            b'N' => Self::Nothing,
            _ => return None,
        })
    }
}

impl Report {
    pub(super) fn encode(self) -> Vec<u8> {
        let (tag, id, number) = match self {
            Self::Hello { pid } => (b'H', 0, pid),
            Self::Fetch => (b'F', 0, 0),
            Self::Started { id, pid } => (b'S', id, pid),
            Self::Refused { id, errno } => (b'R', id, errno),
            Self::Ended { id, status } => (b'E', id, status),
        };
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&u64::to_le_bytes(id));
        bytes.extend_from_slice(&i32::to_le_bytes(number));
        bytes
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let [tag] = take(&mut bytes)?;
        let id = u64::from_le_bytes(take(&mut bytes)?);
        let number = i32::from_le_bytes(take(&mut bytes)?);
        Some(match tag {
            b'H' => Self::Hello { pid: number },
            b'F' => Self::Fetch,
            b'S' => Self::Started { id, pid: number },
            b'R' => Self::Refused { id, errno: number },
            b'E' => Self::Ended { id, status: number },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_socket_and_cut_ones_are_none() {
        let words = vec![b"/bin/p".to_vec(), b"a b".to_vec(), Vec::new(), b"\xff".to_vec()];
        let run = Order::Run { id: 7, until: u64::MAX, words };
        for order in [Order::Bell, Order::Nothing, Order::Signal { signal: 9, until: 5 }, run] {
            let bytes = order.encode();
            assert_eq!(Order::decode(&bytes), Some(order));
            assert_eq!(Order::decode(&bytes[..bytes.len() - 1]), None);
        }
        let (id, pid) = (3, 77);
        for report in [
            Report::Hello { pid },
            Report::Fetch,
            Report::Started { id, pid },
            Report::Refused { id, errno: 2 },
            Report::Ended { id, status: -9 },
        ] {
            let bytes = report.encode();
            assert_eq!(Report::decode(&bytes), Some(report));
            assert_eq!(Report::decode(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!((Order::decode(b"x"), Report::decode(&[b'x'; 13])), (None, None));
    }
}

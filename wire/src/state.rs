//! State records of STATUS, HOST_STATUS and RENEWAL replies (socket-protocol.md 8).

use zerocopy::IntoBytes;

use crate::limits::{MAX_DISKS, MAX_STATE_TEXT, MAX_STATE_TEXT_ACCEPTED};
use crate::name::Name;
use crate::reader::{Need, Reader};
use crate::types::{Disk, Lockspace, Resource, ResourceSpec, StateHeader};

/// The record types of 3.8.5. Later versions have more; those consist of the fixed part and the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum StateType {
    /// The daemon itself.
    Daemon = 1,
    /// A client connection.
    Client = 2,
    /// A lockspace.
    Lockspace = 3,
    /// A holder of a resource.
    Resource = 4,
    /// A host of a lockspace.
    Host = 5,
    /// A past renewal.
    Renewal = 6,
}

impl StateType {
    /// The type with this number, `None` for types of later versions.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Daemon),
            2 => Some(Self::Client),
            3 => Some(Self::Lockspace),
            4 => Some(Self::Resource),
            5 => Some(Self::Host),
            6 => Some(Self::Renewal),
            _ => None,
        }
    }
}

/// What follows the text of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attachment {
    /// Nothing.
    None,
    /// Lockspace records: flags 0.
    Lockspace(Box<Lockspace>),
    /// Resource records: lver 0, RES_SHARED in flags when shared. The disks' pads may hold sector size and descriptor.
    Resource(Box<ResourceSpec>),
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRecord {
    /// Type number, perhaps one that [`StateType`] does not know.
    pub kind: u32,
    /// Always 0.
    pub flags: u32,
    /// Per type, see the constructors.
    pub data32: u32,
    /// Per type, see the constructors.
    pub data64: u64,
    /// Per type, see the constructors.
    pub name: Name,
    /// `key=value` items separated by single spaces, without the final NUL.
    pub text: Vec<u8>,
    /// By type.
    pub attachment: Attachment,
}

impl StateRecord {
    fn plain(kind: StateType, name: Name, data32: u32, data64: u64, text: StateText) -> Self {
        let (kind, text) = (kind as u32, text.into_bytes());
        Self { kind, flags: 0, data32, data64, name, text, attachment: Attachment::None }
    }

    /// The daemon record.
    #[must_use]
    pub fn daemon(our_host_name: Name, text: StateText) -> Self {
        Self::plain(StateType::Daemon, our_host_name, 0, 0, text)
    }

    /// A client record; `pid` -1 when the connection is not registered.
    #[must_use]
    pub fn client(owner_name: Name, pid: i32, text: StateText) -> Self {
        Self::plain(StateType::Client, owner_name, pid as u32, 0, text)
    }

    /// A lockspace record.
    #[must_use]
    pub fn lockspace(lockspace: Lockspace, text: StateText) -> Self {
        let plain = Self::plain(StateType::Lockspace, lockspace.name, 0, lockspace.host_id.get(), text);
        Self { attachment: Attachment::Lockspace(Box::new(lockspace)), ..plain }
    }

    /// A resource record. `pid`: the holder; for orphans and releases the last exclusive owner, 0 if shared.
    #[must_use]
    pub fn resource(resource: ResourceSpec, pid: i32, lver: u64, text: StateText) -> Self {
        let plain = Self::plain(StateType::Resource, resource.resource().name, pid as u32, lver, text);
        Self { attachment: Attachment::Resource(Box::new(resource)), ..plain }
    }

    /// A host record.
    #[must_use]
    pub fn host(host_id: u32, timestamp: u64, text: StateText) -> Self {
        Self::plain(StateType::Host, Name::EMPTY, host_id, timestamp, text)
    }

    /// A renewal record.
    #[must_use]
    pub fn renewal(timestamp: u64, text: StateText) -> Self {
        Self::plain(StateType::Renewal, Name::EMPTY, 0, timestamp, text)
    }

    /// The type, `None` for one of a later version.
    #[must_use]
    pub const fn state_type(&self) -> Option<StateType> {
        StateType::from_number(self.kind)
    }

    /// The `key=value` items of the text in order. `owner_name` takes the rest of the text, as it may contain anything;
    /// an item without `=` has an empty value.
    pub fn items(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.text.as_slice();
        core::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            if let Some(value) = rest.strip_prefix(b"owner_name=") {
                rest = &[];
                return Some((b"owner_name".as_slice(), value));
            }
            let (item, tail) = split_at_byte(rest, b' ');
            rest = tail;
            Some(split_at_byte(item, b'='))
        })
    }

    /// The value of the first item with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.items().find(|(k, _)| *k == key.as_bytes()).map(|(_, value)| value)
    }

    /// Appends the record. Text beyond 4094 bytes is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let text = self.text.get(..MAX_STATE_TEXT).unwrap_or(&self.text);
        let str_len = u32::try_from(text.len() + 1).unwrap_or(0);
        let fixed = StateHeader::new(self.kind, self.flags, self.data32, self.data64, self.name, str_len);
        out.extend_from_slice(fixed.as_bytes());
        out.extend_from_slice(text);
        out.push(0);
        match &self.attachment {
            Attachment::None => {}
            Attachment::Lockspace(ls) => out.extend_from_slice(ls.as_bytes()),
            Attachment::Resource(spec) => spec.encode(out),
        }
    }
}

/// The part before the first `byte` and the part after it.
fn split_at_byte(bytes: &[u8], byte: u8) -> (&[u8], &[u8]) {
    let mut parts = bytes.splitn(2, |&b| b == byte);
    (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]))
}

/// Builder of a record's text.
///
/// ```
/// let text = sanlock_wire::StateText::new().item("ci", 2).item("pid", -1);
/// assert_eq!(text.as_bytes(), b"ci=2 pid=-1");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateText(Vec<u8>);

impl StateText {
    /// Empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends `key=value`. Blanks and control characters in the value become `_`: readers split the text at blanks.
    #[must_use]
    pub fn item(self, key: &str, value: impl core::fmt::Display) -> Self {
        let clean: Vec<u8> = value
            .to_string()
            .bytes()
            .map(|b| if b == b' ' || b.is_ascii_control() { b'_' } else { b })
            .collect();
        self.push(key, &clean)
    }

    /// Appends the last item, whose value may contain anything but NUL (`owner_name` of host records).
    #[must_use]
    pub fn last_item(self, key: &str, value: &[u8]) -> Self {
        let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
        self.push(key, value.get(..end).unwrap_or(&[]))
    }

    /// The text so far.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn push(mut self, key: &str, value: &[u8]) -> Self {
        if !self.0.is_empty() {
            self.0.push(b' ');
        }
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self
    }
}

/// Why a stream of records cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// A text longer than any daemon writes.
    #[error("state record with {len} bytes of text, at most {MAX_STATE_TEXT_ACCEPTED} are accepted")]
    TextTooLong {
        /// Bytes announced.
        len: u32,
    },
    /// A resource with more than 4 disks.
    #[error("state record of a resource with {count} disks, at most {MAX_DISKS} are possible")]
    DiskCount {
        /// Disks announced.
        count: u32,
    },
}

/// Incremental decoder of a stream of records. Holds at most one record.
#[derive(Debug, Clone, Default)]
pub struct StateDecoder {
    buffer: Vec<u8>,
    need: usize,
}

impl StateDecoder {
    /// A decoder at the beginning of the stream, after the reply's header.
    #[must_use]
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), need: StateHeader::SIZE }
    }

    /// How many bytes to read next at most, so that nothing beyond the current record is read; at least 1.
    #[must_use]
    pub fn wants(&self) -> usize {
        self.need.saturating_sub(self.buffer.len())
    }

    /// Whether a record has begun: end of file would cut it.
    #[must_use]
    pub fn in_record(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Consumes bytes from the front of `input` until a record is complete or `input` is empty.
    ///
    /// # Errors
    /// [`StateError`]; there is no way on after it.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<StateRecord>, StateError> {
        loop {
            let (now, rest) = input.split_at(self.wants().min(input.len()));
            self.buffer.extend_from_slice(now);
            *input = rest;
            if self.buffer.len() < self.need {
                return Ok(None);
            }
            match parse_record(&self.buffer)? {
                Ok(record) => {
                    self.buffer.clear();
                    self.need = StateHeader::SIZE;
                    return Ok(Some(record));
                }
                Err(Need(need)) => self.need = need,
            }
        }
    }
}

fn parse_record(bytes: &[u8]) -> Result<Result<StateRecord, Need>, StateError> {
    let mut reader = Reader::new(bytes);
    let fixed: StateHeader = match reader.structure(0) {
        Ok(fixed) => fixed,
        Err(need) => return Ok(Err(need)),
    };
    let len = fixed.str_len.get();
    let str_len = len as usize;
    if str_len > MAX_STATE_TEXT_ACCEPTED {
        return Err(StateError::TextTooLong { len });
    }
    let kind = StateType::from_number(fixed.kind.get());
    let tail = match kind {
        Some(StateType::Lockspace) => Lockspace::SIZE,
        Some(StateType::Resource) => Resource::SIZE,
        _ => 0,
    };
    let text = match reader.take(str_len, tail) {
        Ok(text) => text.split(|&b| b == 0).next().unwrap_or(&[]).to_vec(),
        Err(need) => return Ok(Err(need)),
    };
    let attachment = match kind {
        Some(StateType::Lockspace) => reader.structure(0).map(|ls| Attachment::Lockspace(Box::new(ls))),
        Some(StateType::Resource) => match resource(&mut reader) {
            Ok(spec) => spec.map(|spec| Attachment::Resource(Box::new(spec))),
            Err(count) => return Err(StateError::DiskCount { count }),
        },
        _ => Ok(Attachment::None),
    };
    Ok(attachment.map(|attachment| StateRecord {
        kind: fixed.kind.get(),
        flags: fixed.flags.get(),
        data32: fixed.data32.get(),
        data64: fixed.data64.get(),
        name: fixed.name,
        text,
        attachment,
    }))
}

/// The resource of a record; unlike in requests it may have no disk. The error is a disk count above 4.
fn resource(reader: &mut Reader<'_>) -> Result<Result<ResourceSpec, Need>, u32> {
    let resource: Resource = match reader.structure(0) {
        Ok(resource) => resource,
        Err(need) => return Ok(Err(need)),
    };
    let count = resource.num_disks.get();
    if count as usize > MAX_DISKS {
        return Err(count);
    }
    let mut disks = Vec::new();
    for index in 0..count {
        match reader.structure::<Disk>((count - index - 1) as usize * Disk::SIZE) {
            Ok(disk) => disks.push(disk),
            Err(need) => return Ok(Err(need)),
        }
    }
    ResourceSpec::new(resource, disks).map(Ok).map_err(|_| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<StateRecord> {
        let name = Name::truncated("LS1");
        let disk = Disk::new("/d", 1 << 20).unwrap();
        let spec = ResourceSpec::new(Resource::new(name, Name::truncated("R")), vec![disk; 2]).unwrap();
        vec![
            StateRecord::daemon(Name::truncated("host"), StateText::new().item("gid", 0)),
            StateRecord { kind: 8, ..StateRecord::client(name, -1, StateText::new()) },
            StateRecord::lockspace(Lockspace::new(name, 7, disk), StateText::new().item("list", "spaces")),
            StateRecord::resource(spec, 42, 3, StateText::new().item("list", "held")),
            StateRecord::host(2, 99, StateText::new().item("owner_id", 2).last_item("owner_name", b"a b=c")),
        ]
    }

    #[test]
    fn records_survive_any_segmentation() {
        let expected = records();
        let mut bytes = Vec::new();
        for record in &expected {
            record.encode(&mut bytes);
        }
        for step in [1, 7, 80, 4096] {
            let mut decoder = StateDecoder::new();
            let mut seen = Vec::new();
            for chunk in bytes.chunks(step) {
                let mut input = chunk;
                while let Some(record) = decoder.feed(&mut input).unwrap() {
                    seen.push(record);
                }
            }
            assert!(!decoder.in_record());
            assert_eq!(seen, expected, "chunks of {step}");
        }
    }

    #[test]
    fn text_items() {
        let host = records().pop().unwrap();
        assert_eq!(host.get("owner_id"), Some(b"2".as_slice()));
        assert_eq!(host.get("owner_name"), Some(b"a b=c".as_slice()));
        assert_eq!(host.get("absent"), None);
        assert_eq!(StateText::new().item("n", "a b\n").as_bytes(), b"n=a_b_");
    }

    #[test]
    fn long_text_is_cut_at_4094() {
        let record = StateRecord { text: vec![b'x'; 5000], ..records().remove(0) };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(bytes.len(), 80 + 4095);
        assert_eq!(&bytes[72..76], &4095u32.to_le_bytes());
    }

    #[test]
    fn a_client_accepts_a_longer_text_than_the_daemon_writes() {
        let mut bytes = StateHeader::new(9, 0, 0, 0, Name::EMPTY, 65_536).as_bytes().to_vec();
        bytes.resize(80 + 65_536, b'x');
        let record = StateDecoder::new().feed(&mut bytes.as_slice()).unwrap().unwrap();
        assert_eq!((record.kind, record.state_type(), record.text.len()), (9, None, 65_536));
    }

    #[test]
    fn limits_are_errors() {
        let mut bytes = StateHeader::new(9, 0, 0, 0, Name::EMPTY, 70_000).as_bytes().to_vec();
        let error = StateDecoder::new().feed(&mut bytes.as_slice());
        assert_eq!(error, Err(StateError::TextTooLong { len: 70_000 }));
        bytes = StateHeader::new(4, 0, 0, 0, Name::EMPTY, 0).as_bytes().to_vec();
        let mut resource = Resource::new(Name::EMPTY, Name::EMPTY);
        resource.num_disks = 5.into();
        bytes.extend_from_slice(resource.as_bytes());
        assert_eq!(StateDecoder::new().feed(&mut bytes.as_slice()), Err(StateError::DiskCount { count: 5 }));
    }
}

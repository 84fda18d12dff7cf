//! The records of STATUS, HOST_STATUS and RENEWAL (socket-protocol.md 8).

use super::{Connection, Header, Lockspace, Resource, u32_at, u64_at, unpadded};

/// Bytes of a record before its text.
const FIXED_LEN: usize = 80;
/// Bytes of a disk behind a resource.
const DISK_LEN: usize = 1040;

/// One record.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields of socket-protocol.md 4 and 8")]
pub struct Record {
    pub kind: u32,
    pub data32: u32,
    pub data64: u64,
    pub name: String,
    /// Key and value of each word of the text.
    pub items: Vec<(String, String)>,
    /// Behind the text of a record of type 3.
    pub lockspace: Option<Lockspace>,
    /// Behind the text of a record of type 4; its disks are not read.
    pub resource: Option<Resource>,
}

impl Record {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.items.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All keys in order.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        self.items.iter().map(|(key, _)| key.as_str()).collect()
    }

    /// Reads records up to the end of the bytes.
    ///
    /// # Panics
    /// When they are no records.
    #[must_use]
    pub fn read_all(mut bytes: &[u8]) -> Vec<Self> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            assert!(bytes.len() >= FIXED_LEN, "{} bytes are no record", bytes.len());
            let (fixed, rest) = bytes.split_at(FIXED_LEN);
            let (text, rest) = rest.split_at(u32_at(fixed, 72) as usize);
            bytes = rest;
            let text = text.strip_suffix(&[0]).unwrap_or_else(|| panic!("the text ends in a NUL"));
            let mut record = Self {
                kind: u32_at(fixed, 0),
                data32: u32_at(fixed, 8),
                data64: u64_at(fixed, 16),
                name: String::from_utf8_lossy(&unpadded(&fixed[24..72])).into_owned(),
                items: items(&String::from_utf8_lossy(text)),
                lockspace: None,
                resource: None,
            };
            assert_eq!(u32_at(fixed, 4), 0, "flags of {record:?}");
            match record.kind {
                3 => {
                    record.lockspace = Some(Lockspace::decode(&bytes[..Lockspace::LEN]));
                    bytes = &bytes[Lockspace::LEN..];
                }
                4 => {
                    let resource = Resource::decode(bytes);
                    bytes = &bytes[Resource::LEN + DISK_LEN * resource.num_disks as usize..];
                    record.resource = Some(resource);
                }
                _ => {}
            }
            all.push(record);
        }
        all
    }
}

fn items(text: &str) -> Vec<(String, String)> {
    text.split(' ')
        .filter_map(|word| word.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

impl Connection {
    /// One of the commands that answer with records: the header, and what follows until the daemon closes the connection.
    ///
    /// # Panics
    /// When the exchange fails or the bytes are no records.
    #[must_use]
    pub fn records(self, cmd: u32, data: u32, payload: &[u8]) -> (Header, Vec<Record>) {
        self.records_with(cmd, 0, data, payload)
    }

    /// The same with command flags.
    ///
    /// # Panics
    /// When the exchange fails or the bytes are no records.
    #[must_use]
    pub fn records_with(
        mut self,
        cmd: u32,
        cmd_flags: u32,
        data: u32,
        payload: &[u8],
    ) -> (Header, Vec<Record>) {
        let header = self.request(cmd, cmd_flags, data, 7, payload);
        let bytes = self.receive_to_end();
        (header, Record::read_all(&bytes))
    }
}

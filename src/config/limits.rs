//! Limits of reading a configuration, and of TroupeMQ's own elements. Ranges of HiveMQ's elements stand in `rules`.

/// Size of the file, also once placeholders are replaced, bytes.
pub(super) const FILE_SIZE_MAX: usize = 1024 * 1024;
/// Elements inside each other; HiveMQ's deepest has 8.
pub(super) const DEPTH_MAX: usize = 32;
pub(super) const ELEMENTS_MAX: usize = 20_000;

/// Size of a file of credentials, bytes, and its elements: some 100,000 users.
pub(super) const CREDENTIALS_SIZE_MAX: usize = 64 * 1024 * 1024;
pub(super) const CREDENTIALS_ELEMENTS_MAX: usize = 1_000_000;

/// Keys of tokens: each may have to be tried.
pub(super) const JWT_KEYS_MAX: usize = 64;

/// Declared shared subscriptions of a node: as many as one command takes, whatever their names.
pub(super) const DECLARED_MAX: usize = 5_000;
/// More than a file of `FILE_SIZE_MAX` has: what is too many is told by the number of subscriptions.
pub(super) const DECLARED_ELEMENTS_MAX: usize = 300_000;

/// Shorter cluster secrets are refused, characters.
pub(super) const SECRET_LEN_MIN: usize = 16;
/// Names of nodes and listeners, hosts and paths, bytes.
pub(super) const NAME_LEN_MAX: usize = 255;
/// Paths of files, bytes; that of Linux.
pub(super) const FILE_PATH_LEN_MAX: usize = 4096;
/// The election timeout is at least this many heartbeats, or one lost heartbeat starts an election.
pub(super) const HEARTBEATS_PER_ELECTION_MIN: u64 = 3;

/// Bytes of a Server Reference, which must fit into the packets of small clients.
pub(super) const REFERENCE_LEN_MAX: usize = 1024;

/// Rules of messages that are kept back, of each way.
pub(super) const PREVENTED_RULES_MAX: usize = 100;

// Package etcd is for clusters that have an etcd and no Redis. It keeps in etcd what the ownership
// protocol must agree on, as package store does in Redis. A program that does not import it does
// not link etcd's client.
//
// # Layout
//
// Every key begins with {keyway:CLUSTER}/, and values are netstrings:
//
//	meta                generation, identity of the store, settings, TTL of the sessions, id of the etcd cluster
//	quarantine          exists while the store is in quarantine, by a lease; its value is when that ends
//	changed/partitions  nothing, written with each change of a record or of residue
//	changed/sessions    nothing, written with each registration, release and change of a note
//	placements          which partitions should not go by the ring, a note
//	suspects            keys whose executions may have ended workers, a note
//	complete            nothing; exists once each partition has a record
//	partition/N         record, residue, what the latest move wrote, and the locks that are kept
//	session/INC         name and addresses, written again with each renewal
//	alive/INC           nothing; its lease is the session
//	gone/INC            the stamp of a session that ran out, for an hour
//	released/INC        nothing, for an hour after the release
//	start/NAME          latest incarnation of a name, how many before it died in a row, when it registered
//
// # Transactions
//
// Each call reads the keys that it depends on, decides, and writes in a transaction that compares their
// revisions. A handle remembers the partitions that it has seen, and who lives. A call that changes partitions
// begins with the transaction that writes, on what the handle remembers. It reads only if one of the keys has
// changed. etcd takes 128 operations in one transaction, so a call for many partitions becomes several.
// Each partition is changed by one of them, with the conditions that hold for it. A call that fails in the
// middle leaves its outcome unknown, like one whose reply was lost.
//
// A handle sends a request again, to another member, if it gets no answer in time. The late copy of a write
// changes nothing, or only prolongs a session: each copy compares the same revisions.
//
// # Time
//
// etcd's revision is the store's beat and version. A renewal writes session/INC, so the revision of that key
// is the session's stamp, which stays when the session has run out.
//
// A session exists while alive/INC does. A lease lasts whole seconds and at least one and a half elections
// (2 s by default), and a new leader of etcd prolongs each by its full time. So a session may outlive its
// TTL. That only delays a takeover: no deadline of the protocol relies on the store's clock.
//
// Epochs are at least the caller's clock in Unix seconds, so tokens still rise after the keys were
// deleted.
//
// # Generations
//
// etcd loses no acknowledged write, and a restart or a new leader ends nothing. These events end a generation:
//
//	meta was deleted, or a partition that a call changes
//	etcd has another cluster id: it was restored from a snapshot
//	its revision is lower than a handle has seen: members were started on old data
//	changed/partitions was written less often: it was restored from a snapshot that raised its revision
//	a worker with other settings registers while no session is alive
//
// A handle uses an etcd with another cluster id a TTL after the last answer of the one before. A server that is a
// cluster of its own by mistake would otherwise keep a session alive that the others see end.
package etcd

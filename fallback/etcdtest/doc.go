// Package etcdtest holds package etcd to the meaning of a store, over real servers of etcd in this process. It
// is a module of its own so that users of Keyway do not get a server.
package etcdtest

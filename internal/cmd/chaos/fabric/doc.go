// Package fabric is a network of hosts on one Linux machine whose faults are
// exact. A [Host] is a network namespace with a TAP device; a [Switch], which
// is this process, forwards the Ethernet frames of all hosts and treats those
// of each ordered pair of them by a [Rule]: so every fault is one-way, needs no
// kernel module, and follows a seed.
//
// Namespaces and devices are held by file descriptors only: they are gone with
// the process, however it ends.
package fabric

// Package stores has the common part of all stores: what a handle knows of one, whether it can be
// used, how it stores the members' settings, and how it writes a list of strings.
package stores

// Package stores has what the stores of every kind share: whether one can be used, what it
// keeps of the members' settings, and how it writes a list of strings.
package stores

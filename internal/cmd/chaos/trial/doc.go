// Package trial has what every trial of Keyway's promises has in common: the
// app that sees and judges each execution ([Observer]), the clients ([Load]),
// what they ask for ([Mix]), and the check of what both have seen
// ([Operations], [Linearizable]).
package trial

// Package growth simulates clusters of growing size, and plots what they ask of their store (make scale).
package growth

package lock

import (
	"container/heap"
	"slices"
	"sync"
	"time"
)

// lockAlarm wakes the holds of a Locker in time. They share one timer, which
// is left alone as long as it fires early enough: a timer for each lock would
// cost more than the rest of taking it.
type lockAlarm struct {
	mu    sync.Mutex
	due   alarmQueue
	timer *time.Timer
	at    time.Time // when the timer fires; zero if it does not
}

// set makes the hold's tick run at that time, instead of any time set before.
func (a *lockAlarm) set(h *hold, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.alarm.at = at
	if h.alarm.place == 0 {
		heap.Push(&a.due, h)
	} else {
		heap.Fix(&a.due, h.alarm.place-1)
	}
	a.planLocked()
}

// clear forgets a hold.
func (a *lockAlarm) clear(h *hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.alarm.place > 0 {
		heap.Remove(&a.due, h.alarm.place-1)
	}
}

// all are the holds that are to be woken.
func (a *lockAlarm) all() []*hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.due)
}

// planLocked makes the timer fire for the first hold.
func (a *lockAlarm) planLocked() {
	if len(a.due) == 0 {
		return
	}
	first := a.due[0].alarm.at
	if !a.at.IsZero() && !first.Before(a.at) {
		return
	}
	a.at = first
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(first), a.fire)
		return
	}
	a.timer.Reset(time.Until(first))
}

func (a *lockAlarm) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Time{}
	now := time.Now()
	for len(a.due) > 0 && !a.due[0].alarm.at.After(now) {
		h := heap.Pop(&a.due).(*hold)
		go h.tick()
	}
	a.planLocked()
}

// alarmPlace is a hold's place in the queue.
type alarmPlace struct {
	at    time.Time
	place int // from 1; 0: not in the queue
}

// alarmQueue is a heap of holds, the first one due first.
type alarmQueue []*hold

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].alarm.at.Before(q[j].alarm.at) }
func (q alarmQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].alarm.place, q[j].alarm.place = i+1, j+1
}

func (q *alarmQueue) Push(x any) {
	h := x.(*hold)
	*q = append(*q, h)
	h.alarm.place = len(*q)
}

func (q *alarmQueue) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	h.alarm.place = 0
	return h
}
